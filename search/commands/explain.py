"""Which configuration serves a shape, from which table, and why: the dispatcher's own answer."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import triton

from kernels.device import GFX950, DeviceKey, local_device
from kernels.dispatch import load_dispatcher
from kernels.families.defaults import default_choice
from kernels.problem import GemmShape
from kernels.runtime.dispatcher import Dispatcher
from kernels.tables import Choice
from kernels.tables.file import load_table
from kernels.tables.rows import TableRow, is_stale
from kernels.tables.sources import TableSource
from kernels.wording import counted, printable
from search.space.available import config_absence

FACT = 10  # characters before what a line says


@dataclass(frozen=True)
class Explanation:
    """Answer to "what runs for this shape?".

    Args:
        choice: Family, configuration, and the table's answer; without a row the family's default serves.
        table: File that holds the row; None without one.
        sources: Files that were consulted, and whether their rows can serve the device.
        stale: Whether the kernels changed since the row was made.
        layer: Every row that the tables have for this N and K.
        absence: What the row needs and this machine lacks, so that a default serves here; None where there is nothing,
            or where the GPU here is another device, of which nothing is known.
        lacking: How many rows of each of ``sources`` would serve the device, but need what this machine lacks.
    """

    shape: GemmShape
    device: DeviceKey
    choice: Choice
    table: Path | None
    sources: tuple[TableSource, ...]
    stale: bool
    layer: tuple[TableRow, ...]
    absence: str | None = None
    lacking: tuple[int, ...] = ()

    def lines(self) -> list[str]:
        """The answer in words, one fact a line."""
        found, row = self.choice.lookup, self.choice.lookup.row
        config = ", ".join(f"{name}={value!r}" for name, value in self.choice.config.to_dict().items())
        lines = [
            f"{self.shape} on {self.device}",
            f"match     {found.how}: {found.explanation}",
            f"family    {self.choice.family}{'' if row else ', the default'}",
            f"config    {config}",
        ]
        if row is not None:
            stale = "yes: the kernels changed since; sweep it again" if self.stale else "no"
            if row.other_compiler is not None:
                stale = f"{'' if stale == 'no' else f'{stale}; '}made with Triton {row.other_compiler}, which may rank"
                stale += f" otherwise than {triton.__version__} here; sweep it again"
            lines += [f"evidence  {_evidence(row, self.shape.M)}", f"made      {_origin(row)}", f"stale     {stale}"]
            lines += [f"table     {self.table}"]
        if self.absence is not None:
            lines += [f"absent    {self.absence}; until then {self.default_family}, the default, serves here instead"]
        reaches = dict.fromkeys(f"M = {row.M} for {row.least_M}..{row.greatest_M}" for row in self.layer)
        lines += [f"rows      {', '.join(reaches) or 'none'} at N = {self.shape.N}, K = {self.shape.K}"]
        read = [_source(source, lacking) for source, lacking in zip(self.sources, self.lacking, strict=True)]
        none = [f"no table for {self.device.arch}; sweep and export to make one"]
        return [printable(line) for line in (*lines, *(f"read      {one}" for one in read or none))]

    @property
    def default_family(self) -> str:
        """Family that serves where a row cannot."""
        return default_choice(self.shape, self.device)[0]

    def to_json(self) -> dict[str, Any]:
        """The same facts as JSON values."""
        found, row = self.choice.lookup, self.choice.lookup.row
        return {
            **asdict(self.shape), **asdict(self.device), "how": found.how, "explanation": found.explanation,
            "family": self.choice.family, "config": self.choice.config.to_dict(),
            "row": None if row is None else _row_json(row), "stale": self.stale, "absence": self.absence,
            "instead": None if self.absence is None else self.default_family,
            "table": None if self.table is None else str(self.table),
            "rows_M": list(dict.fromkeys(row.M for row in self.layer)),
            "sources": [
                {"path": str(s.path), **asdict(s.device), "rows": s.rows, "used": s.used, "lacking": lacking}
                for s, lacking in zip(self.sources, self.lacking, strict=True)
            ],
        }  # fmt: skip


def explain(shape: GemmShape, table: Path | None = None) -> Explanation:
    """What serves ``shape`` on the local GPU, or without one on ``GFX950``.

    Args:
        table: Explain with this table alone, for the device that it names; default: the tables that a program
            started here would use.

    Raises:
        InputError: A table cannot be read.
    """
    if table is None:
        dispatcher = load_dispatcher(local_device() or GFX950)
    else:
        given = load_table(table)
        source = TableSource(table, given.device, len(given.rows), given.rows)
        dispatcher = Dispatcher(given.device, given, sources=(source,))
    choice = dispatcher.choose(shape)
    row = choice.lookup.row
    layer = dispatcher.table.layer(shape.N, shape.K) if dispatcher.table is not None else ()
    path = next((source.path for source in dispatcher.sources if row in source.serving), None)
    stale = row is not None and is_stale(row)
    lacking = tuple(_lacking(source, dispatcher.device) for source in dispatcher.sources)
    return Explanation(
        shape, dispatcher.device, choice, path, dispatcher.sources, stale, layer,
        _absence(choice, dispatcher.device), lacking,
    )  # fmt: skip


def _absence(what: Choice | TableRow, device: DeviceKey) -> str | None:
    """What ``what`` needs to run on ``device`` and this machine lacks, whether or not its GPU is there."""
    known = local_device() in (None, device)
    return config_absence(what.family, what.config, device, offline=False) if known else None


def _lacking(source: TableSource, device: DeviceKey) -> int:
    """How many rows of ``source`` would serve ``device`` and cannot here; each configuration is looked at once."""
    alike = Counter((row.family, row.config) for row in source.serving)
    samples = {(row.family, row.config): row for row in source.serving}
    return sum(number for point, number in alike.items() if _absence(samples[point], device) is not None)


def _evidence(row: TableRow, M: int) -> str:
    spread = "" if row.spread_us is None else f", spread {row.spread_us:g} us"
    if row.predicted_lo_us is not None and row.predicted_hi_us is not None:
        spread = f" ({row.predicted_lo_us:g} to {row.predicted_hi_us:g})"
    if row.tied:
        spread += f", one of {row.tied + 1} tried that it cannot tell apart"
    repeats = "the same bits every run" if row.deterministic else "the last bit may differ between runs"
    if not row.config.repeatable:
        repeats = "sums of bf16 values: less exact than other rows, and the bits may differ between runs"
    where = "" if row.M == M else f" at M = {row.M}"
    return f"{row.evidence} {row.cost_us:g} us{where}{spread} by {row.made.protocol}; {repeats}"


def _origin(row: TableRow) -> str:
    made = row.made
    trial = "" if made.trial is None else f", trial {made.trial}"
    return (
        f"{made.date}, triton {made.triton}, torch {made.torch}, sources {made.source_hash}, study {made.study}{trial}"
    )


def _source(source: TableSource, lacking: int) -> str:
    rest = f", {lacking} not on this machine" if lacking else ""
    return f"{source.path}: {counted(source.rows, 'row')} for {source.device}, {source.used - lacking} can serve{rest}"


def _row_json(row: TableRow) -> dict[str, Any]:
    values = {name: value for name, value in asdict(row).items() if name not in ("family", "config")}
    return values | {"made": values["made"] | {"date": row.made.date.isoformat()}}
