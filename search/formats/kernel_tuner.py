"""Kernel Tuner's cachefiles: every configuration of one kernel at one problem size, times in milliseconds.

Source: ``kernel_tuner/util.py`` (``store_cache``, ``process_cache``) of Kernel Tuner. The name of the kernel is that of
a family here, the problem size M, N, K, the device as a ``DeviceKey`` is written. A failure is a word in place of the
time. A file whose tuning was cut off lacks its closing braces.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from kernels.device import GFX950, DeviceKey
from kernels.families import FAMILIES
from kernels.problem import GemmShape
from search.formats.format import Format, LeftOut, Old, Reading, Trial, Written, make_config, old_json, reading

FAILURES: Final[Mapping[str, str]] = {
    "InvalidConfig": "illegal",
    "CompilationFailedConfig": "compile_error",
    "RuntimeFailedConfig": "crashed",
}
RAN: Final = ("ok", "slow")  # outcomes with a time, where one was measured
PROTOCOL: Final = "Kernel Tuner's cachefile"
FIELDS: Final = ("device_name", "kernel_name", "problem_size", "tune_params_keys", "cache")
_DEVICE = re.compile(r"(\w+)-(\d+)cu")


def recognises(path: Path, text: str) -> bool:
    """Whether the text begins as a cachefile does."""
    return path.suffix == ".json" and '"tune_params_keys"' in text[:100_000]


def read(path: Path, text: str) -> Reading:
    """The configurations of a family of this project."""
    content = _parsed(text)
    try:
        device, shape, family = _heading(content)
    except ValueError as error:
        return Reading((), tuple(LeftOut(key, str(error)) for key in content.get("cache", {})))
    return reading(content["cache"].items(), partial(_trial, device, shape, family, content["tune_params_keys"]))


def _parsed(text: str) -> dict[str, Any]:
    """The content, also of a file that was cut off behind an entry."""
    try:
        content = json.loads(text)
    except json.JSONDecodeError:
        content = json.loads(text.rstrip().rstrip(",") + "}\n}")
    if not isinstance(content, dict):
        raise ValueError("no cachefile")
    return content


def _heading(content: Mapping[str, Any]) -> tuple[DeviceKey, GemmShape, str]:
    missing = [name for name in FIELDS if name not in content]
    if missing:
        raise ValueError(f"the cachefile lacks {', '.join(missing)}")
    family, size = content["kernel_name"], content["problem_size"]
    if family not in FAMILIES:
        raise ValueError(f"kernel {family} is no family of this project")
    match = _DEVICE.fullmatch(str(content["device_name"]))
    if match is None:
        raise ValueError(f"device_name {content['device_name']!r} does not say architecture and CUs, as {GFX950}")
    if not (isinstance(size, list) and len(size) == 3 and all(isinstance(extent, int) for extent in size)):
        raise ValueError(f"problem_size {size!r} is not [M, N, K]")
    return DeviceKey(match[1], int(match[2])), GemmShape(*size), str(family)


def _trial(device: DeviceKey, shape: GemmShape, family: str, names: Sequence[str], entry: Mapping[str, Any]) -> Trial:
    config = make_config(family, {name: entry[name] for name in names})
    failure = entry.get("__error__", entry["time"] if isinstance(entry.get("time"), str) else None)
    if failure is None:
        time_ms = float(entry["time"])
        return Trial(
            device, shape, family, config, time_us=1e3 * time_ms, protocol=str(entry.get("protocol", PROTOCOL)),
            started=str(entry.get("timestamp", "")), compile_s=_seconds(entry.get("compile_time")),
        )  # fmt: skip
    outcome = FAILURES.get(str(failure), "crashed")
    return Trial(device, shape, family, config, outcome, reason=str(failure), protocol=PROTOCOL)


def _seconds(milliseconds: Any) -> float | None:
    return None if milliseconds is None else float(milliseconds) / 1e3


def write_trials(trials: Sequence[Trial], old: Old) -> Written:
    """A cachefile for each device, shape and family; measured trials and failures, merged with what is there."""
    groups: dict[str, list[Trial]] = defaultdict(list)
    left_out: list[LeftOut] = []
    for trial in trials:
        if trial.time_us is None and trial.outcome in RAN:
            left_out.append(LeftOut(str(trial.shape), "not measured; a cachefile holds measured times"))
        else:
            groups[f"{trial.device}-{trial.shape}-{trial.family}.json"].append(trial)
    files, added, replaced = {}, 0, 0
    for name, members in groups.items():
        content = old_json(old, name, _parsed) or _empty(members[0])
        entries = {_key(trial): _entry(trial) for trial in members}
        again = len(entries.keys() & content["cache"].keys())
        replaced, added = replaced + again, added + len(entries) - again
        content["cache"] = {**content["cache"], **entries}
        files[name] = json.dumps(_described(content), indent=1) + "\n"
    return Written(files, added, replaced, tuple(left_out))


def _empty(trial: Trial) -> dict[str, Any]:
    shape = trial.shape
    return {
        "device_name": str(trial.device), "kernel_name": trial.family, "problem_size": [shape.M, shape.N, shape.K],
        "tune_params_keys": list(trial.config.to_dict()), "tune_params": {}, "objective": "time", "cache": {},
    }  # fmt: skip


def _described(content: Mapping[str, Any]) -> dict[str, Any]:
    """``content`` with the values that each knob takes in it."""
    values = {
        name: sorted({entry[name] for entry in content["cache"].values()}) for name in content["tune_params_keys"]
    }
    return {**content, "tune_params": values}


def _key(trial: Trial) -> str:
    return ",".join(map(str, trial.config.to_dict().values()))


def _entry(trial: Trial) -> dict[str, Any]:
    failures = {outcome: word for word, outcome in FAILURES.items()}
    failed = failures.get(trial.outcome, "RuntimeFailedConfig")
    time: float | str = trial.time_us / 1e3 if trial.time_us is not None and trial.outcome in RAN else failed
    times = [time] if isinstance(time, float) else []
    compile_ms = None if trial.compile_s is None else 1e3 * trial.compile_s
    return {
        **trial.config.to_dict(), "time": time, "times": times, "compile_time": compile_ms,
        "protocol": trial.protocol, "timestamp": trial.started,
    }  # fmt: skip


FORMAT = Format(recognises=recognises, read=read, write_trials=write_trials)
