"""Results for people: the closing tables of a sweep, and rows of trials."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from rich.console import Console

from kernels.config import KernelConfig
from kernels.device import DeviceKey
from kernels.problem import GemmShape
from kernels.tables.rows import EVIDENCE
from kernels.wording import counted
from search.evaluation import OUTCOMES, SIMULATED
from search.report.finals import print_finals
from search.results.comparisons import cliffs
from search.results.ranges import RangeRow
from search.results.studies import are_simulated
from search.results.unfinished import never_begun_lines, settled_early, unfinished, unfinished_line
from search.results.winners import Competition, Winner, config_of, shapes_of, winners
from search.terminal import TextTable, print_lines, print_table

TILE = ("BLOCK_M", "BLOCK_N", "BLOCK_K")
OVERVIEW = (
    "M", "N", "K", "family", "outcome", "time_us", "predicted_us", "bound", "roofline_fraction", "vgprs", "lds_bytes",
    "occupancy", "reason",
)  # fmt: skip
KEYS = 4  # of these, the ones before the configuration
CONFIGURATION = "configuration"  # column that is shown and not stored: the knobs in a few words
USUAL = {"split_k": "split", "num_warps": "warps", "num_stages": "stages"}  # shown always, by these words


@dataclass(frozen=True)
class Summary:
    """What a sweep found out about one shape.

    Args:
        winner: None if no candidate may win.
        outcomes: How many trials ended in each outcome, in the order of ``OUTCOMES``.
        evidence: The winner's, or that a simulated GPU took its time; "" without one.
        settled: How early the winner's search had done enough; "" where it took every trial.
    """

    device: DeviceKey
    shape: GemmShape
    winner: Winner | None
    outcomes: dict[str, int]
    settled: str = ""
    evidence: str = ""


def summarize(frame: pd.DataFrame, best: Sequence[Winner] | None = None) -> list[Summary]:
    """One summary for each (device, shape) of the results, in the order of N, K, M.

    Args:
        best: Winners of ``frame``; found if not given.
    """
    won = {(w.device, w.shape): w for w in (winners(frame) if best is None else best)}
    studies = {key: str(frame["study"][winner.row]) for key, winner in won.items()}
    settled = settled_early(frame, studies.values())
    counts: dict[tuple[DeviceKey, GemmShape], dict[str, int]] = {key: {} for key in shapes_of(frame)}
    sizes: Any = frame.groupby(["arch", "cu_count", "M", "N", "K", "outcome"]).size().items()
    for (arch, cu_count, M, N, K, outcome), count in sizes:
        counts[DeviceKey(arch, int(cu_count)), GemmShape(int(M), int(N), int(K))][outcome] = int(count)
    return [
        Summary(device, shape, won.get((device, shape)), {name: found[name] for name in OUTCOMES if name in found},
                settled.get(studies.get((device, shape), ""), ""), _evidence(frame, won.get((device, shape))))
        for (device, shape), found in counts.items()
    ]  # fmt: skip


def _evidence(frame: pd.DataFrame, winner: Winner | None) -> str:
    if winner is None:
        return ""
    return SIMULATED if are_simulated(frame.loc[[winner.row], "protocol"]).item() else winner.evidence


def compact(config: KernelConfig) -> str:
    """The configuration in a few words: tile, usual knobs, and whatever differs from the default."""
    default = type(config)().to_dict()
    values = config.to_dict()
    tile = "x".join(str(values[name]) for name in TILE if name in values)
    words = [tile] if tile else []
    words += [f"{short} {values[name]}" for name, short in USUAL.items() if name in values]
    other = [name for name in values if name not in (*TILE, *USUAL) and values[name] != default[name]]
    return ", ".join(words + [f"{name} {values[name]}" for name in other])


def closing_table(summaries: Sequence[Summary]) -> TextTable:
    """Winner of each shape: family, configuration, time, roofline fraction, margin, outcomes.

    The header says whether a time was measured, predicted or simulated; each kind has a column of its own.
    """
    found = {summary.evidence for summary in summaries}
    kinds = [kind for kind in (*EVIDENCE, SIMULATED) if kind in found]
    several = len({summary.device for summary in summaries}) > 1
    numbers = (*(f"{kind} us" for kind in kinds), "roofline", "margin")
    header = (*(["device"] if several else []), "shape", "family", "configuration", *numbers, "outcomes")
    rows = tuple(
        (*([str(summary.device)] if several else []), str(summary.shape), *_cells_of(summary, kinds))
        for summary in summaries
    )
    return TextTable(header, rows, right=frozenset(numbers))


def _cells_of(summary: Summary, kinds: Sequence[str]) -> tuple[str, ...]:
    """What the table says behind the shape; the time stands in the column of its kind."""
    family, config, time_us, *rest = winner_cells(summary)
    times = [time_us if summary.evidence == kind else "" for kind in kinds]
    return family, config, *times, *rest, ", ".join(filter(None, (outcome_counts(summary), summary.settled)))


def winner_cells(summary: Summary) -> tuple[str, str, str, str, str]:
    """Family, configuration, time in us, roofline fraction and margin of the winner, as they are shown."""
    winner = summary.winner
    if winner is None:
        # Before a search has a best of its own, what is slow is so beside the default.
        none = "no winner: the default is faster" if "slow" in summary.outcomes else "no winner"
        return none, "", "", "", ""
    time_us, roofline = f"{winner.cost_us:.2f}", percent(winner.roofline_fraction)
    return winner.family, compact(winner.config), time_us, roofline, margin(winner)


def outcome_counts(summary: Summary) -> str:
    """How many trials ended in each outcome, as it is shown."""
    return ", ".join(f"{count} {name}" for name, count in summary.outcomes.items())


def margin(winner: Winner) -> str:
    """How much slower the next one is, or among how many that cannot be told apart the winner was chosen."""
    several = winner.evidence == "predicted" and len(winner.equals) > 1
    return f"1 of {len(winner.equals)} equal" if several else percent(winner.margin)


def percent(part: float | None) -> str:
    """A part of one as text."""
    return "" if part is None else f"{100 * part:.1f} %"


def print_closing(
    frame: pd.DataFrame,
    console: Console,
    *,
    interrupted: bool = False,
    asked: Iterable[str] = (),
    gains: Sequence[str] = (),
    competition: Competition | None = None,
) -> list[Summary]:
    """Print the closing table, the cliffs beside its winners, which searches were cut short, gains; its summaries.

    Args:
        asked: Shapes of the sweep; those that were never begun are named.
        competition: Of ``frame``; made if not given.
    """
    competition = competition or Competition.of(frame)
    summaries = summarize(frame, competition.winners())
    say_if_simulated(frame, console)
    if summaries:
        print_table(closing_table(summaries), console)
    else:
        console.print("no trials yet")
    print_finals(frame, console)
    best = [summary.winner for summary in summaries if summary.winner is not None]
    lines = [cliff.line() for cliff in cliffs(frame, best, competition)]
    lines += ["interrupted; everything found is kept, the same command resumes"] if interrupted else []
    print_lines([*lines, *_cut_short(frame, best), *never_begun_lines(frame, asked), *gains], console)
    return summaries


def _cut_short(frame: pd.DataFrame, best: Sequence[Winner]) -> list[str]:
    """A line about the searches of winners that were cut short; none without any."""
    studies = [(winner.shape, str(frame["study"][winner.row])) for winner in best]
    lacks = unfinished(frame, [study for _, study in studies])
    doubtful = {shape: lacks[study] for shape, study in studies if study in lacks}
    return [unfinished_line(doubtful)] if doubtful else []


def say_if_simulated(frame: pd.DataFrame, console: Console) -> None:
    """Print that times of ``frame`` are a simulated GPU's, where some are."""
    if are_simulated(frame["protocol"]).any():
        print_lines(["no GPU measured these times: they are a simulated one's, which export refuses"], console)


def overview(frame: pd.DataFrame) -> pd.DataFrame:
    """Of the columns that people look at first those that hold anything, each configuration in a few words."""
    shown = with_configuration(frame)[[*OVERVIEW[:KEYS], CONFIGURATION, *OVERVIEW[KEYS:]]]
    return shown.dropna(axis="columns", how="all")


def with_configuration(frame: pd.DataFrame) -> pd.DataFrame:
    """``frame`` and the column :data:`CONFIGURATION`."""
    words = [compact(config_of(row)) for _, row in frame.iterrows()]
    return frame.assign(**{CONFIGURATION: pd.array(words, dtype="string")})


def print_rows(frame: pd.DataFrame, console: Console) -> None:
    """Print ``frame`` as a table, and the number of its rows."""
    numbers = [str(name) for name in frame.columns if pd.api.types.is_numeric_dtype(frame[name].dtype)]
    rows = tuple(tuple(map(_cell, row)) for row in frame.itertuples(index=False, name=None))
    if rows:
        print_table(TextTable(tuple(map(str, frame.columns)), rows, right=frozenset(numbers)), console)
    console.print(counted(len(frame), "row"))


def _cell(value: Any) -> str:
    if pd.isna(value):
        return "-"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


RANGES_HEADER = ("N", "K", "serves M", "family", "configuration", "worst regret")


def print_ranges(ranges: Sequence[RangeRow], console: Console) -> None:
    """Print what each row serves and the most that it loses, and how many rows stand for how many M."""
    rows = tuple(map(_range_cells, ranges))
    if rows:
        print_table(TextTable(RANGES_HEADER, rows, right=frozenset(("N", "K", "worst regret"))), console)
    print_lines([f"{counted(len(ranges), 'row')} for M at {sum(len(row.Ms) for row in ranges)} rungs"], console)


def _range_cells(row: RangeRow) -> tuple[str, ...]:
    span = str(row.Ms[0]) if len(row.Ms) == 1 else f"{row.Ms[0]} to {row.Ms[-1]}"
    return str(row.shape.N), str(row.shape.K), span, row.family, compact(row.config), percent(row.worst)
