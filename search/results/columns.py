"""Columns of the results: one row a trial. A column keeps its name, dtype and unit for ever; units end the name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, get_type_hints

import pandas as pd
import pyarrow as pa

from kernels.device import DeviceKey
from kernels.families import FAMILIES
from kernels.problem import GemmShape
from search.evaluation import Value

HELP = "help"  # in place of the name of a column: lists them all
ALL_LISTED = f"`inspect --columns {HELP}` lists them"
INTEGER, NUMBER, TEXT, FLAG = "Int64", "Float64", "string", "boolean"  # pandas' nullable dtypes


class Role(Enum):
    """What a column's value belongs to, where a trial is repeated in finals or served from a recorded sweep."""

    fact = "the candidate"
    rate = "its time and shape, from which it follows"
    finals = "the finals of the study"
    build = "the versions that made the candidate"
    run = "this one evaluation"
    queue = "the GPU's queue at the time"


@dataclass(frozen=True)
class Column:
    """Dtype and role of a column."""

    dtype: str
    role: Role = Role.fact


def _group(dtype: str, names: str, role: Role = Role.fact) -> dict[str, Column]:
    return dict.fromkeys(names.split(), Column(dtype, role))


def _knobs() -> dict[str, Column]:
    """Every configuration field of every family, in the order of the registry."""
    found: dict[str, Column] = {}
    for family in FAMILIES.values():
        hints = get_type_hints(family.config_type)
        for field in fields(family.config_type):
            found.setdefault(field.name, Column(INTEGER if hints[field.name] is int else TEXT))
    return found


IDENTITY: Mapping[str, Column] = {
    **_group(TEXT, "study"),
    **_group(INTEGER, "trial"),  # Optuna's number within the study
    **_group(TEXT, "target arch"),
    **_group(INTEGER, "cu_count M N K"),  # M, N, K: logical elements
    **_group(TEXT, "shape"),  # MxNxK, to group by
    **_group(TEXT, "family"),
}
CONFIG: Mapping[str, Column] = _knobs()
VERDICT: Mapping[str, Column] = _group(TEXT, "outcome reason evidence")
TIMES: Mapping[str, Column] = {
    **_group(NUMBER, "time_us time_lo_us time_hi_us"),  # measured: median and its interval
    **_group(INTEGER, "samples"),
    **_group(NUMBER, "host_launch_us"),  # what the host spends on a launch outside of a graph; no part of time_us
    **_group(INTEGER, "rotated_bytes"),  # that cold launches go round; 0 if warm
    **_group(FLAG, "selected tie", Role.finals),  # of the winner: it serves; others could not be told from it
    **_group(NUMBER, "margin_us confidence rank_tau", Role.finals),  # to the next; of being faster; search to finals
    **_group(NUMBER, "confirmed_us", Role.finals),  # of the selected row, through the dispatcher
    **_group(NUMBER, "baseline_us"),  # the family default on the same GPU, the last time it was run
    **_group(NUMBER, "predicted_us"),
    # The interval that holds nine of ten measured times; the relative difference that tells two candidates apart.
    **_group(NUMBER, "predicted_lo_us predicted_hi_us predicted_tie"),
    **_group(NUMBER, "formula_us"),  # by the formula on the compiled code: who is too slow by it is not executed
    **_group(TEXT, "model bound"),  # the timing model's version; its largest term
    **_group(NUMBER, "roofline_us"),  # the least time that FLOPs and bytes allow
    **_group(NUMBER, "tflops bandwidth_gbs", Role.rate),  # of the measured time only
    **_group(NUMBER, "predicted_tflops predicted_bandwidth_gbs", Role.rate),  # of the predicted time only
    **_group(NUMBER, "roofline_fraction", Role.rate),  # roofline_us over the time that the row's evidence names
}
COMPILED: Mapping[str, Column] = {
    **_group(INTEGER, "vgprs agprs sgprs spills sgpr_spills scratch_bytes lds_bytes kernarg_bytes"),
    **_group(INTEGER, "occupancy workgroups_per_cu kernels"),  # waves a SIMD; of the GEMM kernel; launches a call
    # Instructions in the text of the GEMM kernel, as the fields of the instruction mix are called.
    **_group(INTEGER, "mfma mfma_other cvt_scalef32 valu transcendental lds_read lds_write lds_direct"),
    **_group(INTEGER, "global_load global_store global_atomic scratch scalar waits barriers"),
    **_group(NUMBER, "compile_s"),
    **_group(FLAG, "cached"),  # whether the compiled kernels came from the disk
}
CHECKED: Mapping[str, Column] = {
    **_group(NUMBER, "max_rel_error"),
    **_group(INTEGER, "mismatches"),  # elements beyond the tolerance
    **_group(FLAG, "deterministic"),
    **_group(TEXT, "checked_on"),  # what ran the candidate: interpreter, simulator or device
    **_group(INTEGER, "executed"),  # instructions that the simulator executed
    **_group(NUMBER, "check_s"),
}
EXECUTED: Mapping[str, Column] = {  # by the simulator: instructions of a wave of the GEMM kernel, on average
    **_group(NUMBER, "executed_mfma executed_valu executed_transcendental executed_lds executed_global"),
    **_group(NUMBER, "executed_scalar executed_waits executed_barriers"),
}
ORIGIN: Mapping[str, Column] = {
    **_group(TEXT, "protocol"),
    **_group(TEXT, "triton torch", Role.build),
    **_group(TEXT, "rocm_or_cuda device_name"),
    **_group(INTEGER, "gpu_index"),
    **_group(TEXT, "source_hash", Role.build),
    **_group(TEXT, "started", Role.run),  # ISO 8601 with the offset from UTC
    **_group(NUMBER, "duration_s", Role.run),
    **_group(INTEGER, "trials_wanted"),  # of the study in all, by the sweep that ran this one
    **_group(FLAG, "settled", Role.run),  # of a trial with which the search had done enough, whatever it was allowed
    **_group(NUMBER, "gpu_s gpu_wait_s", Role.queue),  # on the GPU's worker; how long that had nothing to do before
    **_group(TEXT, "driver gpu_notes"),  # gpu_notes: throttling, other processes
    **_group(INTEGER, "clock_mhz power_w"),  # of the compute units, of the socket; just after timing
}
FACTS: Mapping[str, Column] = {**TIMES, **COMPILED, **CHECKED, **ORIGIN, **EXECUTED}  # what an evaluation fills
COLUMNS: Mapping[str, str] = {
    name: column.dtype for name, column in {**IDENTITY, **CONFIG, **VERDICT, **FACTS}.items()
}  # fmt: skip


def facts_without(*roles: Role) -> list[str]:
    """Columns that an evaluation fills, but for those of ``roles``."""
    return [name for name, column in FACTS.items() if column.role not in roles]


_SUFFIX_UNITS = {
    "_us": "us", "_s": "s", "_bytes": "B", "_gbs": "GB/s", "tflops": "TFLOP/s", "_mhz": "MHz", "_fraction": "1",
    "rel_error": "1",
}  # fmt: skip
_EXTENT = "logical elements"


def unit_of(name: str) -> str:
    """Unit of a column; "" of a text, a flag or a count."""
    if name in ("M", "N", "K"):
        return _EXTENT
    return next((unit for suffix, unit in _SUFFIX_UNITS.items() if name.endswith(suffix)), "")


UNITS: Mapping[str, str] = {name: unit for name in COLUMNS if (unit := unit_of(name))}


def typed_array(name: str, values: Sequence[Value]) -> Any:
    """``values`` with the dtype of column ``name``; None is NA.

    Raises:
        ValueError: A value is not of that dtype.
    """
    dtype: Any = COLUMNS[name]
    try:
        return pd.array(values, dtype=dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"column {name} is not {dtype}: {error}") from error


def typed_frame(columns: Mapping[str, Sequence[Value]]) -> pd.DataFrame:
    """All ``COLUMNS`` with their dtypes and, in ``attrs["units"]``, their units; those that are not given hold NA.

    ``shape`` follows from M, N and K.

    Args:
        columns: Values by column, of one length; None is NA.

    Raises:
        ValueError: A value is not of its column's dtype.
    """
    rows = len(next(iter(columns.values()), ()))
    missing: list[Value] = [None] * rows
    return _finished(pd.DataFrame({name: typed_array(name, columns.get(name, missing)) for name in COLUMNS}))


ARROW: Mapping[str, pa.DataType] = {
    INTEGER: pa.int64(), NUMBER: pa.float64(), TEXT: pa.string(), FLAG: pa.bool_(),
}  # fmt: skip


def arrow_table(records: Sequence[Mapping[str, Value]]) -> pa.Table:
    """``records`` as columns, which take a tenth of their room.

    Raises:
        ValueError: A value is not of its column's dtype.
    """
    known = set().union(*records)
    missing = {dtype: pa.nulls(len(records), ARROW[dtype]) for dtype in ARROW}
    return pa.table({
        name: _arrow_array(name, [record.get(name) for record in records]) if name in known else missing[dtype]
        for name, dtype in COLUMNS.items()
    })  # fmt: skip


def _arrow_array(name: str, values: Sequence[Value]) -> pa.Array:
    try:
        return pa.array(values, ARROW[COLUMNS[name]], from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise ValueError(f"column {name} is not {COLUMNS[name]}: {error}") from error


def frame_of_table(table: pa.Table) -> pd.DataFrame:
    """The same as :func:`typed_frame`, of what :func:`arrow_table` gave."""
    dtypes: dict[Any, Any] = {ARROW[name]: pd.api.types.pandas_dtype(name) for name in ARROW}
    frame = table.to_pandas(types_mapper=dtypes.get, split_blocks=True, self_destruct=True)
    return _finished(frame)


def _finished(frame: pd.DataFrame) -> pd.DataFrame:
    """``frame`` with what follows from its columns, and their units."""
    M, N, K = (frame[name].astype("string") for name in ("M", "N", "K"))
    frame["shape"] = M + "x" + N + "x" + K  # missing where one of them is
    frame.attrs["units"] = dict(UNITS)
    return frame


def rows_of(frame: pd.DataFrame, device: DeviceKey, shape: GemmShape | None = None) -> pd.DataFrame:
    """The trials of one device, or of one of its shapes."""
    mine = (frame["arch"] == device.arch) & (frame["cu_count"] == device.cu_count)
    if shape is not None:
        mine &= frame["shape"] == str(shape)
    return frame[mine.fillna(False)]


def cost_us(rows: pd.DataFrame) -> pd.Series[Any]:
    """Microseconds [rows] that the evidence of each row names; NA where there are none."""
    return rows["time_us"].where((rows["evidence"] == "measured").fillna(False), rows["predicted_us"])


def protocol_of(row: pd.Series[Any]) -> str:
    """How the time of a results row was obtained: the timing protocol, or the model of a prediction; "" if unknown."""
    predicted = not pd.isna(row["evidence"]) and row["evidence"] == "predicted"
    how = row["model" if predicted else "protocol"]
    return "" if pd.isna(how) else str(how)
