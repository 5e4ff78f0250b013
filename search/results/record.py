"""What a trial records: one flat JSON mapping of the results columns that are known."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from numbers import Real
from typing import Any

from kernels.device import DeviceKey
from kernels.families import FAMILIES
from search.evaluation import Candidate, Evaluation, Point, Value
from search.results.columns import COLUMNS, FACTS, FLAG, INTEGER, TEXT

RECORD = "record"  # the user attribute of a trial
FINAL = "final"  # that of one which repeats another in the finals of its study
COLUMNS_OF = "columns-"  # begins the attribute of a study that lists the columns of its packed records
Record = dict[str, Value]
Packed = list[Any]  # version of the columns, which of them as a hexadecimal mask, their values
Listed = Mapping[str, Sequence[str]]  # columns by their version


def make_record(
    *,
    study: str,
    device: DeviceKey,
    candidate: Candidate,
    evaluation: Evaluation,
    started: str,
    duration_s: float,
    versions: Mapping[str, str],
    target: str | None = None,
) -> Record:
    """Known results columns of one trial, as JSON values, with the figures that follow from its time.

    ``tflops`` and ``bandwidth_gbs`` are of a measured time, ``predicted_tflops`` and
    ``predicted_bandwidth_gbs`` of a predicted one, ``roofline_fraction`` of the one that ``evidence`` names.
    A fact that is None, infinite or NaN is unknown and left out.

    Args:
        evaluation: Verdict; its ``objective_us`` becomes ``time_us`` or ``predicted_us``.
        started: ISO 8601, with the offset from UTC.
        versions: Columns ``triton``, ``torch``, ``rocm_or_cuda``; ``source_hash`` is the family's by default.
        target: As the user named it; default: the device.

    Raises:
        ValueError: A fact or version that is no column or has another type, or an ``ok`` without a time.
    """
    shape = candidate.shape
    facts: dict[str, Value] = {"source_hash": FAMILIES[candidate.family].source_hash, **evaluation.facts, **versions}
    facts |= {"started": started, "duration_s": duration_s}
    record = {
        "study": study, "target": target or str(device), "arch": device.arch,
        "cu_count": device.cu_count, "M": shape.M, "N": shape.N, "K": shape.K, "family": candidate.family,
        **candidate.config.to_dict(),
        "outcome": evaluation.outcome, "reason": " ".join(evaluation.reason.split()) or None,
        "evidence": evaluation.evidence,
        **{name: _fact(name, value) for name, value in facts.items()},
    }  # fmt: skip
    record |= _objective(evaluation, record)
    record |= _rates(candidate, record)
    return {name: record[name] for name in COLUMNS if record.get(name) is not None}


def _fact(name: str, value: Value) -> Value:
    """``value`` as the column's JSON type; None where it says nothing."""
    if name not in FACTS:
        raise ValueError(f"{name!r} is not a results column that an evaluation fills; see search.results.COLUMNS")
    if value is None or (isinstance(value, Real) and not math.isfinite(value)):
        return None
    dtype = FACTS[name].dtype
    if dtype == TEXT and isinstance(value, str):
        return value
    if dtype == FLAG and (isinstance(value, bool) or type(value).__name__ == "bool"):  # NumPy's bool is no bool
        return bool(value)
    if dtype not in (TEXT, FLAG) and isinstance(value, Real) and not isinstance(value, bool):
        if dtype == INTEGER and int(value) != value:
            raise ValueError(f"{name} = {value!r} is not a whole number")
        return int(value) if dtype == INTEGER else float(value)
    raise ValueError(f"{name} = {value!r} is not of type {dtype}")


def _objective(evaluation: Evaluation, record: Mapping[str, Value]) -> Record:
    """The objective in the column that its evidence names."""
    if evaluation.objective_us is None or evaluation.evidence is None:
        if evaluation.outcome == "ok":
            raise ValueError("an ok evaluation needs evidence and objective_us")
        return {}
    objective_us = float(evaluation.objective_us)
    if not (math.isfinite(objective_us) and objective_us > 0):
        raise ValueError(f"objective_us = {objective_us} is not a time")
    name = "time_us" if evaluation.evidence == "measured" else "predicted_us"
    if record.get(name) not in (None, objective_us):
        raise ValueError(f"{name} = {record[name]} differs from objective_us = {objective_us}")
    return {name: objective_us}


def _rates(candidate: Candidate, record: Mapping[str, Value]) -> Record:
    rates: Record = {}
    for prefix, name in (("", "time_us"), ("predicted_", "predicted_us")):
        time_us = record.get(name)
        if isinstance(time_us, float):
            rates[f"{prefix}tflops"] = candidate.shape.flops / time_us * 1e-6
            rates[f"{prefix}bandwidth_gbs"] = candidate.shape.unique_bytes / time_us * 1e-3
    time_us = record.get("time_us" if record.get("evidence") == "measured" else "predicted_us")
    roofline_us = record.get("roofline_us")
    if isinstance(time_us, float) and isinstance(roofline_us, float):
        rates["roofline_fraction"] = roofline_us / time_us
    return rates


def point_of(record: Mapping[str, Any]) -> Point | None:
    """Family and configuration of a results row; None where the family or a field no longer exists."""
    family = FAMILIES.get(record["family"])
    if family is None:
        return None
    names = family.config_type().to_dict()
    if any(record.get(name) is None for name in names):
        return None
    return family.name, family.config({name: record[name] for name in names})


@cache
def columns_version() -> str:
    """Names today's columns and their order."""
    return hashlib.sha256(json.dumps(list(COLUMNS)).encode()).hexdigest()[:8]


def packed(record: Mapping[str, Value]) -> Packed:
    """``record`` without the names of its columns, which are more than half of it.

    Raises:
        KeyError: A name that is no column.
    """
    places = {name: place for place, name in enumerate(COLUMNS)}
    known = sorted(record, key=places.__getitem__)
    mask = sum(1 << places[name] for name in known)
    return [columns_version(), f"{mask:x}", *(record[name] for name in known)]


def unpacked(stored: Any, listed: Listed) -> Record:
    """The record that :func:`packed` was given; one of an earlier version, which has its names, as it is.

    Args:
        stored: What a trial holds.
        listed: Columns of the versions that its study names.

    Raises:
        ValueError: It is torn, or of a version that the study does not list.
    """
    if isinstance(stored, dict):
        return stored
    try:
        version, mask, *values = stored
        names = _names(tuple(listed[version]), int(mask, 16))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"no columns for it: {error}") from error
    return dict(zip(names, values, strict=True))


@cache
def _names(columns: tuple[str, ...], mask: int) -> tuple[str, ...]:
    return tuple(name for place, name in enumerate(columns) if mask >> place & 1)
