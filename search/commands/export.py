"""From results to tuned tables: the winners as rows, merged into the table that is there."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
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
from search.commands.locks import locked
from search.results import PLACE
from search.results.columns import rows_of
from search.results.comparisons import Regret, regrets
from search.results.studies import are_replayed, are_simulated
from search.results.unfinished import unfinished
from search.results.winners import Winner, shapes_of, winners
from search.study.reach import AgainstDefault

DIGITS = 4  # decimals of a microsecond in a table


@dataclass(frozen=True)
class Export:
    """What was written.

    Args:
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


def export(frame: pd.DataFrame, *, table: Path | None, output: Path | None, min_gain: float) -> list[Export]:
    """Merge the winners of ``frame`` into a table for each device, and write it.

    Rows of replays, whose times were recorded earlier and perhaps elsewhere, and of simulated GPUs are left out: a
    line on the error stream says so.

    Args:
        table: Incumbent rows; default: ``output``, else the project's table of the device. It need not exist.
        output: Where to write; default: over ``table``.
        min_gain: Part of an incumbent's time that a challenger must save, see ``kernels.tables.merge``.

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
    with locked([output or path for path in tables.values()]):
        plans = [_plan(frame, device, path, output, min_gain) for device, path in tables.items()]
        texts = [readable_text(plan.report.table, plan.path) for plan in plans]
        for plan, text in zip(plans, texts, strict=True):  # only when every table was read, merged and can be read
            write_atomically(plan.path, text.encode())
    return plans


def _exportable(frame: pd.DataFrame) -> pd.DataFrame:
    """``frame`` without the rows that would say of recorded or modelled times that they were measured here."""
    frame = _without(frame, are_replayed(frame["study"]), "replays", "export what was recorded instead")
    return _without(frame, are_simulated(frame["protocol"]), "trials of a simulated GPU", "sweep on a real one")


def _without(frame: pd.DataFrame, bad: pd.Series[Any], kind: str, cure: str) -> pd.DataFrame:
    """``frame`` without the ``bad`` rows, which a line names.

    Raises:
        InputError: There are no others.
    """
    if not bad.any():
        return frame
    if bad.all():
        raise InputError(f"the results hold {kind} only, which measure nothing; {cure}")
    shapes = ", ".join(str(shape) for _, shape in shapes_of(frame[bad]))
    print(f"skipped  {kind} of {shapes}: they measure nothing; {cure}", file=sys.stderr)
    return frame[~bad]


def default_path(device: DeviceKey) -> Path:
    """The project's table of ``device``: named by architecture, and by CU count too where that name is taken."""
    path = table_path(device)
    path.parent.mkdir(parents=True, exist_ok=True)  # of an installed program, in the user's folder for data
    if path.exists() and load_table(path).device != device:
        return path.with_name(f"{device}.yaml")
    return path


def _plan(frame: pd.DataFrame, device: DeviceKey, table: Path, output: Path | None, min_gain: float) -> Export:
    old = load_table(table) if table.exists() else TunedTable(device)
    if old.device != device:
        raise InputError(f"{table}: is for {old.device}, the results are of {device}; name another --table")
    mine = rows_of(frame, device)
    chosen = _winning_trials(mine, old)
    rows = [row for row, _ in chosen]
    shapes = {row.shape for row in rows}
    unresolved = tuple(shape for _, shape in shapes_of(mine) if shape not in shapes)
    report = merge(old, TunedTable(device, tuple(rows)), min_gain=min_gain, untried=_untried(mine, old))
    report = _with_reach(report, mine)
    lacks = unfinished(mine, {row.made.study for row in rows})
    doubtful = {row.shape: lacks[row.made.study] for row in report.table.rows if row.made.study in lacks}
    costly = tuple(regret for regret in regrets(mine, report.table) if regret.most > min_gain)
    origins = {row.key: str(trial[PLACE]) for row, trial in chosen if PLACE in trial}
    return Export(output or table, report, unresolved, doubtful, costly, origins)


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
    family = FAMILIES[row.family]
    same = trials["source_hash"].map(family.made, na_action="ignore").fillna(False).astype("boolean")
    defaults = family.config_type().to_dict()  # stand where a trial's version did not record the field
    for name, value in row.config.to_dict().items():
        same &= trials[name].fillna(defaults[name]) == value
    return bool(same.fillna(False).any())


def table_rows(frame: pd.DataFrame, incumbents: TunedTable | None = None) -> list[TableRow]:
    """A row for each shape with a winner; a second one where the winner's result may vary and another's may not.

    Raises:
        InputError: A winner whose trial does not say when and with which versions it was made.
    """
    return [row for row, _ in _winning_trials(frame, incumbents)]


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
        predicted_us=None if measured else cost_us,
    )  # fmt: skip


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
    return Made(day, triton, torch, sources, protocol, study)


def unresolved_shapes(exports: Sequence[Export]) -> list[GemmShape]:
    """Shapes without a winner, over all devices."""
    return [shape for one in exports for shape in one.unresolved]
