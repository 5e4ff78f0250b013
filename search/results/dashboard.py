"""What Optuna's own tools show of a study and its trials, optuna-dashboard above all."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import optuna
from optuna.exceptions import ExperimentalWarning

from kernels.device import DeviceKey
from kernels.problem import GemmShape
from search.evaluation import Value

FACTS = (
    "outcome", "evidence", "reason", "roofline_fraction", "bound", "vgprs", "lds_bytes", "occupancy", "kernels",
)  # fmt: skip
OFFLINE = "offline-"  # begins the protocol of what was predicted


def describe_study(study: optuna.Study, device: DeviceKey, shape: GemmShape, protocol: str) -> None:
    """Say in the study's own words what it is, for those who look at it with Optuna's tools."""
    if study.metric_names is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)  # Optuna's word for set_metric_names since 3.2
            study.set_metric_names(["predicted us" if protocol.startswith(OFFLINE) else "measured us"])
    known = study.user_attrs
    extents: dict[str, Value] = {"shape": str(shape), "M": shape.M, "N": shape.N, "K": shape.K}
    attributes: dict[str, Value] = {"device": str(device), **extents, "protocol": protocol}
    for name, value in attributes.items():
        if known.get(name) != value:
            study.set_user_attr(name, value)


def main_facts(record: Mapping[str, Value]) -> dict[str, Value]:
    """What of a trial's record is an attribute of its own, for those who look at it with Optuna's tools."""
    return {name: record[name] for name in FACTS if record.get(name) is not None}
