"""T4, the result files that Kernel Tuner and other tuners share: every trial of one problem, measurements with units.

Source: the T4 results schema of the auto-tuning community (``schema_version`` 1.0.0). ``metadata`` says device and
problem, a configuration holds the family beside its knobs.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from kernels.device import DeviceKey
from kernels.families import FAMILIES
from kernels.problem import GemmShape
from search.formats.format import Format, LeftOut, Old, Reading, Trial, Written, make_config, old_json, reading

SCHEMA: Final = "1.0.0"
UNITS_US: Final[Mapping[str, float]] = {"s": 1e6, "seconds": 1e6, "ms": 1e3, "milliseconds": 1e3, "us": 1.0, "ns": 1e-3}
MEASURED, PREDICTED = "time", "predicted_time"
# Our outcomes by T4's words, and back; several of ours share a word.
OUTCOMES: Final[Mapping[str, str]] = {
    "correct": "ok", "constraints": "illegal", "compile": "compile_error", "runtime": "crashed",
    "correctness": "wrong_result", "timeout": "timed_out",
}  # fmt: skip
INVALIDITY: Final[Mapping[str, str]] = {
    **{ours: theirs for theirs, ours in OUTCOMES.items()},
    "resource_limit": "compile",
    "slow": "correct",
}
PROTOCOL: Final = "T4 results"


def recognises(path: Path, text: str) -> bool:
    """Whether the text begins as T4 results do."""
    return path.suffix == ".json" and '"schema_version"' in text[:1000]


def read(path: Path, text: str) -> Reading:
    """The trials of a problem of this project."""
    content: dict[str, Any] = json.loads(text)
    results = content.get("results", [])
    try:
        device, shape = _heading(content.get("metadata", {}))
    except (ValueError, TypeError, KeyError) as error:
        return Reading((), tuple(LeftOut(f"result {i}", str(error)) for i, _ in enumerate(results)))
    return reading(((f"result {i}", result) for i, result in enumerate(results)), partial(_trial, device, shape))


def _heading(metadata: Mapping[str, Any]) -> tuple[DeviceKey, GemmShape]:
    problem = metadata.get("problem", {})
    if not {"M", "N", "K"} <= problem.keys() or not {"arch", "cu_count"} <= metadata.keys():
        raise ValueError("metadata says no arch, cu_count and problem {M, N, K}")
    return DeviceKey(str(metadata["arch"]), int(metadata["cu_count"])), GemmShape(
        *(int(problem[name]) for name in "MNK")
    )


def _trial(device: DeviceKey, shape: GemmShape, result: Mapping[str, Any]) -> Trial:
    values = dict(result["configuration"])
    family = str(values.pop("family", ""))
    if family not in FAMILIES:
        raise ValueError(f"family {family!r} is none of this project")
    outcome = OUTCOMES.get(result["invalidity"])
    if outcome is None:
        raise ValueError(f"invalidity {result['invalidity']!r} is unknown")
    times = {one["name"]: float(one["value"]) * UNITS_US[one["unit"]] for one in result.get("measurements", [])}
    return Trial(
        device, shape, family, make_config(family, values), outcome, times.get(MEASURED), times.get(PREDICTED),
        str(result.get("reason", "")), str(result.get("protocol", PROTOCOL)), str(result.get("timestamp", "")),
        result.get("times", {}).get("compilation_time"),
    )  # fmt: skip


def write_trials(trials: Sequence[Trial], old: Old) -> Written:
    """A file for each device and shape; results of a configuration replace those that are there."""
    groups: dict[str, list[Trial]] = defaultdict(list)
    for trial in trials:
        groups[f"{trial.device}-{trial.shape}.json"].append(trial)
    files, added, replaced = {}, 0, 0
    for name, members in groups.items():
        content = old_json(old, name) or _empty(members[0])
        known = {_key(result["configuration"]): result for result in content["results"]}
        ours = {_key(result["configuration"]): result for result in map(_result, members)}
        again = len(known.keys() & ours.keys())
        replaced, added = replaced + again, added + len(ours) - again
        files[name] = json.dumps({**content, "results": list({**known, **ours}.values())}, indent=1) + "\n"
    return Written(files, added, replaced)


def _empty(trial: Trial) -> dict[str, Any]:
    shape, device = trial.shape, trial.device
    problem = {"M": shape.M, "N": shape.N, "K": shape.K}
    metadata = {"arch": device.arch, "cu_count": device.cu_count, "kernel": "mxfp4_gemm", "problem": problem}
    return {"schema_version": SCHEMA, "metadata": metadata, "results": []}


def _key(configuration: Mapping[str, Any]) -> str:
    return json.dumps(configuration, sort_keys=True)


def _result(trial: Trial) -> dict[str, Any]:
    unseen = trial.outcome == "slow" and trial.time_us is None  # neither executed nor measured: nobody shall take it
    times = {} if unseen else {MEASURED: trial.time_us, PREDICTED: trial.predicted_us}
    measurements = [{"name": name, "value": us, "unit": "us"} for name, us in times.items() if us is not None]
    return {
        "timestamp": trial.started, "configuration": {"family": trial.family, **trial.config.to_dict()},
        "times": {} if trial.compile_s is None else {"compilation_time": trial.compile_s},
        "invalidity": "constraints" if unseen else INVALIDITY[trial.outcome],
        "correctness": int(trial.outcome == "ok"), "reason": trial.reason,
        "protocol": trial.protocol, "measurements": measurements,
        "objectives": [one["name"] for one in measurements[:1]],
    }  # fmt: skip


FORMAT = Format(recognises=recognises, read=read, write_trials=write_trials)
