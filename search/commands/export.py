"""From results to tuned tables: the winners as rows, merged into the table that is there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd

from kernels.device import DeviceKey
from kernels.disk import write_atomically
from kernels.errors import InputError
from kernels.families import FAMILIES
from kernels.problem import GemmShape
from kernels.tables.file import load_table, readable_text
from kernels.tables.merging import MergeReport, merge
from kernels.tables.rows import Made, RowKey, TableRow, TunedTable, needs_proof
from kernels.tables.sources import table_path
from search.evaluation import ServedCandidate, served
from search.results import PLACE
from search.results.columns import rows_of
from search.results.comparisons import Regret, regrets
from search.results.locks import locked
from search.results.ranges import choose_ranges, only_ranges
from search.results.studies import are_replayed, are_simulated
from search.results.unfinished import unfinished
from search.results.winners import Winner, shapes_of, winners
from search.study.reach import AgainstDefault

DIGITS = 4  # decimals of a microsecond in a table


@dataclass(frozen=True)
class Claim:
    """That a row is right wherever it will serve."""

    row: TableRow
    candidate: ServedCandidate


@dataclass(frozen=True)
class Proof:
    """What executing rows found.

    Args:
        right: Claims that hold.
        wrong: Those that do not, and why.
        unproven: Those of which nothing was found out, and why; they were measured, or nothing here executes them.
        failed: Those whose execution did not end, and why: killed, too slow, too large. Nothing else speaks for them.
    """

    right: frozenset[Claim] = frozenset()
    wrong: Mapping[Claim, str] = field(default_factory=dict)
    unproven: Mapping[Claim, str] = field(default_factory=dict)
    failed: Mapping[Claim, str] = field(default_factory=dict)

    def joined(self, other: Proof) -> Proof:
        """Both; of two answers to a claim a fault counts before ``right``, and that before none."""
        wrong = {**self.wrong, **other.wrong}
        failed = {claim: why for claim, why in {**self.failed, **other.failed}.items() if claim not in wrong}
        right = (self.right | other.right) - {*wrong, *failed}
        open_claims = {**self.unproven, **other.unproven}
        answered = {*right, *wrong, *failed}
        return Proof(right, wrong, {one: why for one, why in open_claims.items() if one not in answered}, failed)

    def without_answer(self, claims: Sequence[Claim]) -> list[Claim]:
        """Those of ``claims`` that nobody looked at."""
        return [one for one in claims if one not in {*self.right, *self.wrong, *self.unproven, *self.failed}]

    def refutes(self, row: TableRow) -> bool:
        """Whether the configuration of ``row`` is wrong at its shape."""
        point = (row.family, row.config, row.shape)
        return any((one.row.family, one.row.config, one.row.shape) == point for one in self.wrong)


Prove = Callable[[DeviceKey, Sequence[Claim]], Proof]


@dataclass(frozen=True)
class Export:
    """What was written.

    Args:
        proof: What became of the rows that were executed; those that are wrong or failed were left out.
        unresolved: Shapes of the results that have no winner.
        unfinished: What the search lacks that a row of the table comes from, by the row's shape.
        origins: Of several places of results, the one from which a row came, by its key.
        regrets: Rows that cost more than ``min_gain`` at smaller M of their bucket, as far as the results tell.
    """

    path: Path
    report: MergeReport
    unresolved: tuple[GemmShape, ...]
    unfinished: Mapping[GemmShape, str]
    regrets: tuple[Regret, ...] = ()
    origins: Mapping[RowKey, str] = field(default_factory=dict)
    proof: Proof = Proof()


def export(
    frame: pd.DataFrame,
    *,
    table: Path | None,
    output: Path | None,
    min_gain: float,
    max_regret: float | None = None,
    prove: Prove | None = None,
) -> list[Export]:
    """Merge the winners of ``frame`` into a table for each device, and write it.

    Rows that are new, and old ones that will serve more than before, are executed first. A wrong one, and a new
    one whose execution does not end, is left out, and the runner-up of its shape takes its place.

    Rows of replays, whose times were recorded earlier and perhaps elsewhere, and of simulated GPUs are left out: a
    line on the error stream says so.

    Args:
        table: Incumbent rows; default: ``output``, else the project's table of the device. It need not exist.
        output: Where to write; default: over ``table``.
        min_gain: Part of an incumbent's time that a challenger must save, see :func:`kernels.tables.merging.merge`.
        max_regret: Take the fewest rows of each ladder of M of which none loses more than this part of the best time
            at an M that it serves; None takes one for each M.
        prove: Executes rows; None takes all of them for right.

    Raises:
        InputError: No results or those of replays only, several devices for one file, a table of
            another device, a file that is torn or cannot be written, a trial without its origin.
    """
    frame = _exportable(frame)
    devices = sorted({device for device, _ in shapes_of(frame)})
    if not devices:
        raise InputError("the results hold no trial; run `sweep` first")
    if len(devices) > 1 and (table or output):
        names = ", ".join(map(str, devices))
        raise InputError(f"the results are of {names}; leave out --table and --output to write one table each")
    tables = {device: table or output or default_path(device) for device in devices}
    proofs = dict.fromkeys(devices, Proof())
    while True:
        with locked([output or path for path in tables.values()]):
            plans = {
                device: _plan(frame, device, tables[device], output, min_gain, max_regret, proofs[device])
                for device in devices
            }
            open_claims = {} if prove is None else _open_claims(plans)
            if prove is None or not open_claims:
                _write([plan for plan, _ in plans.values()])
                return [plan for plan, _ in plans.values()]
        for device, claims in open_claims.items():  # outside of the lock: minutes, if there are many
            proofs[device] = proofs[device].joined(prove(device, claims))


def _open_claims(plans: Mapping[DeviceKey, tuple[Export, list[Claim]]]) -> dict[DeviceKey, list[Claim]]:
    """What is still to be proven, by device."""
    found = {device: plan.proof.without_answer(claims) for device, (plan, claims) in plans.items()}
    return {device: claims for device, claims in found.items() if claims}


def _write(plans: Sequence[Export]) -> None:
    """Only when every table was read, merged and can be read back."""
    texts = [readable_text(plan.report.table, plan.path) for plan in plans]
    for plan, text in zip(plans, texts, strict=True):
        write_atomically(plan.path, text.encode())


def _exportable(frame: pd.DataFrame) -> pd.DataFrame:
    """``frame`` without the rows that would say of recorded or modelled times that they were measured here."""
    frame = _without(
        frame, are_replayed(frame["study"]), "replays", "measure nothing", "export what was recorded instead"
    )
    baselines = [name for name, family in FAMILIES.items() if family.ordinary_only]
    inexact = frame["family"].isin(baselines).astype("boolean")
    frame = _without(frame, inexact, f"trials of {', '.join(baselines)}", "are not exact", "sweep other families too")
    return _without(
        frame, are_simulated(frame["protocol"]), "trials of a simulated GPU", "measure nothing", "sweep on a real one"
    )


def _without(frame: pd.DataFrame, bad: pd.Series[Any], kind: str, fault: str, cure: str) -> pd.DataFrame:
    """``frame`` without the ``bad`` rows, which a line names.

    Raises:
        InputError: There are no others.
    """
    if not bad.any():
        return frame
    if bad.all():
        raise InputError(f"the results hold {kind} only, which {fault}; {cure}")
    shapes = ", ".join(str(shape) for _, shape in shapes_of(frame[bad]))
    print(f"skipped  {kind} of {shapes}: they {fault}; {cure}", file=sys.stderr)
    return frame[~bad]


def default_path(device: DeviceKey) -> Path:
    """The project's table of ``device``: named by architecture, and by CU count too where that name is taken."""
    path = table_path(device)
    path.parent.mkdir(parents=True, exist_ok=True)  # of an installed program, in the user's folder for data
    if path.exists() and load_table(path).device != device:
        return path.with_name(f"{device}.yaml")
    return path


def _plan(
    frame: pd.DataFrame,
    device: DeviceKey,
    table: Path,
    output: Path | None,
    min_gain: float,
    max_regret: float | None,
    proof: Proof,
) -> tuple[Export, list[Claim]]:
    """What would be written, and what it claims beyond the table that is there."""
    old = load_table(table) if table.exists() else TunedTable(device)
    if old.device != device:
        raise InputError(f"{table}: is for {old.device}, the results are of {device}; name another --table")
    before = {claim.row.key: claim for claim in _claims(old)}
    tried = rows_of(frame, device)
    mine = _without_refuted(tried, proof)
    ranges = [] if max_regret is None else choose_ranges(mine, max_regret)
    if max_regret is not None:
        mine = only_ranges(mine, ranges)
    old = replace(old, rows=tuple(row for row in old.rows if not proof.refutes(row)))
    chosen = _winning_trials(mine, old)
    rows = [row for row, _ in chosen]
    shapes = {row.shape for row in rows} | {replace(row.shape, M=M) for row in ranges for M in row.Ms}
    unresolved = tuple(shape for _, shape in shapes_of(tried) if shape not in shapes)
    report = merge(old, TunedTable(device, tuple(rows)), min_gain=min_gain, untried=_untried(mine, old))
    report = _with_reach(report, mine)
    lacks = unfinished(mine, {row.made.study for row in rows})
    doubtful = {row.shape: lacks[row.made.study] for row in report.table.rows if row.made.study in lacks}
    costly = tuple(regret for regret in regrets(mine, report.table) if regret.most > min_gain)
    origins = {row.key: str(trial[PLACE]) for row, trial in chosen if PLACE in trial}
    plan = Export(output or table, report, unresolved, doubtful, costly, origins, proof)
    return plan, [claim for claim in _claims(report.table) if not _holds(before.get(claim.row.key), claim)]


def _claims(table: TunedTable) -> list[Claim]:
    return [Claim(row, served(row, table)) for row in table.rows]


def _holds(old: Claim | None, new: Claim) -> bool:
    """Whether ``old`` says all that ``new`` does: the same row, which served as many M."""
    if old is None or (old.row.config, old.row.made) != (new.row.config, new.row.made):
        return False
    least, greatest = old.candidate.lowest_M, old.candidate.greatest_M
    return least <= new.candidate.lowest_M and new.candidate.greatest_M <= greatest


def _without_refuted(frame: pd.DataFrame, proof: Proof) -> pd.DataFrame:
    """``frame`` without the trials of configurations that are wrong, or that nobody executed to the end."""
    bad = pd.Series(False, index=frame.index)
    for row in (claim.row for claim in (*proof.wrong, *proof.failed)):
        here = (frame["M"] == row.M) & (frame["N"] == row.N) & (frame["K"] == row.K) & (frame["family"] == row.family)
        bad |= (here & _has_config(frame, row)).fillna(False).astype(bool)
    return frame[~bad]


def _with_reach(report: MergeReport, frame: pd.DataFrame) -> MergeReport:
    """``report``, each of whose rows says how far it serves."""
    comparison = AgainstDefault.of(frame, report.table)
    rows = {row: comparison.with_reach(row) for row in report.table.rows}
    changes = tuple(replace(change, row=rows.get(change.row, change.row)) for change in report.changes)
    return MergeReport(replace(report.table, rows=tuple(rows.values())), changes)


def _untried(frame: pd.DataFrame, table: TunedTable) -> set[RowKey]:
    """Keys of the stale predicted rows of ``table`` that no trial of ``frame``, of its device, judged again."""
    stale = [row for row in table.rows if row.evidence == "predicted" and needs_proof(row)]
    trials = dict(iter(frame.groupby(["M", "N", "K", "family"]))) if stale else {}
    none = frame.iloc[:0]
    return {row.key for row in stale if not _tried(trials.get((row.M, row.N, row.K, row.family), none), row)}


def _tried(trials: pd.DataFrame, row: TableRow) -> bool:
    """Whether one of ``trials``, of the row's shape and family, has its configuration and today's kernels."""
    made_today = trials["source_hash"].map(FAMILIES[row.family].made, na_action="ignore").fillna(False)
    return bool((made_today.astype("boolean") & _has_config(trials, row)).fillna(False).any())


def _has_config(trials: pd.DataFrame, row: TableRow) -> pd.Series[Any]:
    """Which of ``trials``, of the row's family, have its configuration."""
    same = pd.Series(True, index=trials.index, dtype="boolean")
    defaults = FAMILIES[row.family].config_type().to_dict()  # stand where a trial's version did not record the field
    for name, value in row.config.to_dict().items():
        same &= trials[name].fillna(defaults[name]) == value
    return same


def table_rows(frame: pd.DataFrame) -> list[TableRow]:
    """A row for each shape with a winner; a second one where the winner's result may vary and another's may not.

    Raises:
        InputError: A winner whose trial does not say when and with which versions it was made.
    """
    return [row for row, _ in _winning_trials(frame, None)]


def _winning_trials(frame: pd.DataFrame, incumbents: TunedTable | None) -> list[tuple[TableRow, pd.Series[Any]]]:
    """Rows, and the trial of each."""
    best = winners(frame, incumbents)
    varying = {winner.shape for winner in best if not winner.deterministic}
    safe = [w for w in winners(frame, incumbents, deterministic_only=True) if w.shape in varying]
    trials = [(winner, frame.loc[winner.row]) for winner in (*best, *safe)]
    return [(_table_row(winner, trial), trial) for winner, trial in trials]


def _table_row(winner: Winner, trial: pd.Series[Any]) -> TableRow:
    measured = winner.evidence == "measured"
    cost_us = round(winner.cost_us, DIGITS)
    return TableRow(
        winner.shape.M, winner.shape.N, winner.shape.K, winner.family, winner.config, winner.evidence,
        winner.deterministic, _made(winner, trial), time_us=cost_us if measured else None,
        spread_us=None if winner.spread_us is None else round(winner.spread_us, DIGITS),
        predicted_us=None if measured else cost_us, **({} if measured else _uncertainty(winner, trial)),
    )  # fmt: skip


def _uncertainty(winner: Winner, trial: pd.Series[Any]) -> dict[str, Any]:
    """What a predicted time leaves open: between which times it is, and how many others are as good."""
    names = ("predicted_lo_us", "predicted_hi_us")
    known = {name: round(float(trial[name]), DIGITS) for name in names if pd.notna(trial[name])}
    return {**known, "tied": len(winner.equals) - 1}


def _made(winner: Winner, trial: pd.Series[Any]) -> Made:
    how = "protocol" if winner.evidence == "measured" else "model"
    names = ("started", "triton", "torch", "source_hash", how, "study")
    missing = [name for name in names if pd.isna(trial[name])]
    if missing:
        raise InputError(f"results: the winner of {winner.shape} has no {', '.join(missing)}; sweep it again")
    started, triton, torch, sources, protocol, study = (str(trial[name]) for name in names)
    try:
        day = date.fromisoformat(started[:10])
    except ValueError as error:
        raise InputError(f"results: the winner of {winner.shape} started {started!r}, which is no date") from error
    return Made(day, triton, torch, sources, protocol, study, None if pd.isna(trial["trial"]) else int(trial["trial"]))
