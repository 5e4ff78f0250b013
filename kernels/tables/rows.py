"""Values of a tuned table: rows that say which configuration serves a shape, how fast, and on whose word."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date as Date
from itertools import groupby, pairwise
from typing import Literal, get_args

import triton

from kernels.config import KernelConfig
from kernels.device import DeviceKey
from kernels.families import FAMILIES
from kernels.problem import GemmShape, Layout
from kernels.wording import instead_of

SCHEMA = 1  # of the table file; a change of meaning raises it
Evidence = Literal["measured", "predicted"]
OutDtype = Literal["bfloat16"]
EVIDENCE: tuple[Evidence, ...] = get_args(Evidence)  # the more convincing first
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
OUT_DTYPES: tuple[OutDtype, ...] = get_args(OutDtype)
MEASURED = ("time_us", "spread_us")  # fields of a measured row only
PREDICTED = ("predicted_us", "predicted_lo_us", "predicted_hi_us", "tied")
RowKey = tuple[int, int, int, str, str, bool]
# With 3.5 some rows that newer ones made spill registers or misalign LDS: the gate refuses them there.
OLDEST_TRITON = (3, 6)


@dataclass(frozen=True)
class Made:
    """Where a row comes from.

    Args:
        source_hash: Of the kernels, see :attr:`kernels.families.Family.source_hash`.
        protocol: How the time was obtained: the timing protocol, or the timing model's version.
        study: Optuna study that holds the trial.
        trial: Its number there; None in rows of before it was kept.
    """

    date: Date
    triton: str
    torch: str
    source_hash: str
    protocol: str
    study: str
    trial: int | None = None


@dataclass(frozen=True)
class TableRow:
    """The best known configuration of one shape.

    Args:
        M: Rows of C, logical elements; the row serves this M and those near it.
        N: Columns of C, logical elements.
        K: Inner dimension, logical elements (never packed bytes).
        evidence: Whether the time was measured or predicted.
        deterministic: Whether every run gives the same bits.
        time_us: Median device time, of a measured row only.
        spread_us: Width of the measured interval, ``time_hi_us - time_lo_us``; of a measured row only.
        predicted_us: Time by the model, of a predicted row only; like the next three.
        predicted_lo_us, predicted_hi_us: Between which its time is, as far as the model's residuals tell.
        tied: How many other candidates were tried that the model cannot tell from it.
        serves_from: Least M at which it is not slower than the family's default, as far as its maker could tell; by
            default, 1.
        serves_to: The greatest such M; by default, its own.
        graph: Whether calls that the row serves replay a captured graph; set by hand, for products of two or three
            kernels whose tensors recur, see :mod:`kernels.runtime.graphs`.
    """

    M: int
    N: int
    K: int
    family: str
    config: KernelConfig
    evidence: Evidence
    deterministic: bool
    made: Made
    time_us: float | None = None
    spread_us: float | None = None
    predicted_us: float | None = None
    predicted_lo_us: float | None = None
    predicted_hi_us: float | None = None
    tied: int | None = None
    layout: Layout = "shuffled"
    out_dtype: OutDtype = "bfloat16"
    graph: bool = False
    serves_from: int | None = None
    serves_to: int | None = None

    def __post_init__(self) -> None:
        """Reject a row that contradicts itself.

        Raises:
            ValueError: The message starts with the field's name.
        """
        GemmShape(self.M, self.N, self.K)
        self._check_family()
        self._check_words()
        self._check_times()
        if not self.least_M <= self.M <= self.greatest_M or self.least_M < 1:
            raise ValueError(f"serves_from: {self.least_M}..{self.greatest_M} does not hold M = {self.M}; correct it")

    def _check_family(self) -> None:
        family = FAMILIES.get(self.family)
        if family is None:
            raise ValueError(f"family: {self.family!r} is unknown; {instead_of(self.family, FAMILIES)}")
        if type(self.config) is not family.config_type:
            raise ValueError(f"config: {type(self.config).__name__} is not of family {self.family}")
        if self.deterministic and not family.is_deterministic(self.config):
            raise ValueError(f"deterministic: {self.family} sums in an order that may vary; say false")

    def _check_words(self) -> None:
        for name, value, words in (
            ("evidence", self.evidence, EVIDENCE),
            ("layout", self.layout, LAYOUTS),
            ("out_dtype", self.out_dtype, OUT_DTYPES),
        ):
            if value not in words:
                raise ValueError(f"{name}: {value!r} is unknown; {instead_of(value, words)}")

    def _check_times(self) -> None:
        measured = self.evidence == "measured"
        (needed, *_), foreign = (MEASURED, PREDICTED) if measured else (PREDICTED, MEASURED)
        if getattr(self, needed) is None:
            raise ValueError(f"{needed}: missing; a {self.evidence} row needs it")
        for name in foreign:
            if getattr(self, name) is not None:
                raise ValueError(f"{name}: a {self.evidence} row must not have it")
        if not (math.isfinite(self.cost_us) and self.cost_us > 0):
            raise ValueError(f"{needed}: {self.cost_us} is not a positive time in microseconds")
        if self.spread_us is not None and not (math.isfinite(self.spread_us) and self.spread_us >= 0):
            raise ValueError(f"spread_us: {self.spread_us} is not a width in microseconds")
        if (self.predicted_lo_us is None) != (self.predicted_hi_us is None):
            raise ValueError("predicted_lo_us: it and predicted_hi_us belong together; add the other, or remove both")
        lo_us, hi_us = self.predicted_lo_us or self.cost_us, self.predicted_hi_us or self.cost_us
        if not 0 < lo_us <= self.cost_us <= hi_us < math.inf:
            raise ValueError(f"predicted_lo_us: {lo_us:g}..{hi_us:g} us does not hold {needed} = {self.cost_us:g}")
        if self.tied is not None and self.tied < 0:
            raise ValueError(f"tied: {self.tied} is no number of candidates")
        if self.made.trial is not None and self.made.trial < 0:
            raise ValueError(f"made: trial {self.made.trial} is no number of a trial")

    @property
    def shape(self) -> GemmShape:
        """The problem of the row's own M."""
        return GemmShape(self.M, self.N, self.K)

    @property
    def other_compiler(self) -> str | None:
        """The Triton that made the row, where the one here is of another minor version; None where it is not."""
        same = minor_version(self.made.triton) == minor_version(triton.__version__)
        return None if same else self.made.triton

    @property
    def is_too_new(self) -> bool:
        """Whether Triton compiles the row's kernels, is older here than :data:`OLDEST_TRITON`, and did not make it."""
        compiled = FAMILIES[self.family].is_triton and self.other_compiler is not None
        return compiled and minor_numbers(triton.__version__) < OLDEST_TRITON

    @property
    def least_M(self) -> int:
        """Least M that the row may serve."""
        return 1 if self.serves_from is None else self.serves_from

    @property
    def greatest_M(self) -> int:
        """Greatest M that the row may serve."""
        return self.M if self.serves_to is None else self.serves_to

    @property
    def cost_us(self) -> float:
        """The measured time, or the predicted one of a predicted row, in microseconds."""
        cost = self.time_us if self.evidence == "measured" else self.predicted_us
        assert cost is not None
        return cost

    @property
    def key(self) -> RowKey:
        """What occurs once in a table, and its order: N, K, M, layout, out_dtype, deterministic."""
        return (self.N, self.K, self.M, self.layout, self.out_dtype, self.deterministic)

    @property
    def rank(self) -> tuple[int, float]:
        """Sorts the row to serve first: measured before predicted, then by time."""
        return (EVIDENCE.index(self.evidence), self.cost_us)

    def __str__(self) -> str:
        name = "time_us" if self.evidence == "measured" else "predicted_us"
        return f"{self.shape} {self.family} {name}={self.cost_us:g}"


@dataclass(frozen=True)
class TunedTable:
    """Rows for one device, unique by key and in the order of their keys."""

    device: DeviceKey
    rows: tuple[TableRow, ...] = ()
    _layers: Mapping[tuple[int, int], tuple[TableRow, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Sort the rows.

        Raises:
            ValueError: Two rows have the same key.
        """
        rows = tuple(sorted(self.rows, key=lambda row: row.key))
        for first, second in pairwise(rows):
            if first.key == second.key:
                raise ValueError(f"two rows for {first.shape} with deterministic = {first.deterministic}")
        layers = {layer: tuple(found) for layer, found in groupby(rows, lambda row: (row.N, row.K))}
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "_layers", layers)

    def layer(self, N: int, K: int) -> tuple[TableRow, ...]:
        """The rows of one weight's extents, in the order of M."""
        return self._layers.get((N, K), ())


def is_stale(row: TableRow) -> bool:
    """Whether the kernels changed since the row was made: it still serves, its time no longer counts."""
    return not FAMILIES[row.family].made(row.made.source_hash)


def minor_version(version: str) -> str:
    """``version`` without its patch: 3.9.0+git1 is 3.9."""
    return ".".join(version.split("+")[0].split(".")[:2])


def minor_numbers(version: str) -> tuple[int, int]:
    """Major and minor number of ``version``: 3.10.1 is (3, 10)."""
    major, minor = minor_version(version).split(".")
    return int(major), int(minor)


def needs_proof(row: TableRow) -> bool:
    """Whether a sweep should try the row first: the kernels changed since it was made, or the compiler did."""
    return is_stale(row) or row.other_compiler is not None


def kernels_of(row: TableRow) -> str:
    """Tells the kernels of two rows apart: the row's source hash where it is stale; "" for today's, of any family."""
    return row.made.source_hash if is_stale(row) else ""
