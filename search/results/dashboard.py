"""What Optuna's own tools show of a study and its trials, optuna-dashboard above all."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
import pandas as pd
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.exceptions import ExperimentalWarning

from kernels.device import DeviceKey
from kernels.errors import InputError
from kernels.problem import GemmShape
from search.evaluation import Value
from search.results.columns import CONFIG
from search.results.record import Record
from search.results.storage import open_storage
from search.results.trials import frozen_trial

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


def write_studies(frame: pd.DataFrame, path: Path) -> None:
    """Write the trials of ``frame`` as Optuna has them, with parameters and main facts, to a new SQLite file.

    Raises:
        InputError: The file cannot be written.
    """
    temporary = path.with_name(f".{secrets.token_hex(4)}{path.suffix}")
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # it names every study that is made
    try:
        storage = open_storage(temporary, create=True)
        for name, rows in frame.groupby("study", sort=False):
            _write_study(storage, str(name), rows)
        storage.remove_session()
        temporary.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); name a folder you may write") from error
    finally:
        temporary.unlink(missing_ok=True)


def _write_study(storage: optuna.storages.BaseStorage, name: str, rows: pd.DataFrame) -> None:
    study = optuna.create_study(storage=storage, study_name=name)
    first = rows.iloc[0]
    shape = GemmShape(*(int(first[extent]) for extent in ("M", "N", "K")))
    protocol = next(iter(rows["protocol"].dropna()), "")
    describe_study(study, DeviceKey(str(first["arch"]), int(first["cu_count"])), shape, protocol)
    spaces = {str(name): _distribution(rows[name].dropna()) for name in ("family", *CONFIG) if rows[name].notna().any()}
    for record in rows.astype(object).to_dict("records"):
        known: Record = {str(name): value for name, value in record.items() if not pd.isna(value)}
        held = {name: of for name, of in spaces.items() if name in known}
        parameters = {name: known[name] for name in held}
        study.add_trial(frozen_trial(known, main_facts(known), params=parameters, distributions=held))


def _distribution(values: pd.Series[Any]) -> BaseDistribution:
    """What holds all of ``values`` of a parameter."""
    if pd.api.types.is_integer_dtype(values.dtype):
        return IntDistribution(int(values.min()), int(values.max()))
    return CategoricalDistribution(sorted(map(str, values.unique())))
