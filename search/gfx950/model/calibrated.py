"""A gfx950 as it was measured on the machine itself: constants and a harness of its own, kept with the device."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from kernels.device import DeviceKey
from kernels.disk import user_data
from kernels.errors import InputError
from search.gfx950.machine import COLD, WARM, Harness, Machine, machine_of
from search.gfx950.model.constants import CONSTANTS, Constants

FORMAT = 1


@dataclass(frozen=True)
class Model:
    """What predictions are made with.

    Args:
        calibrated: Date of the measurement on the device itself; None where there was none.
    """

    machine: Machine
    constants: Constants = CONSTANTS
    calibrated: str | None = None


def with_values(constants: Constants, values: Mapping[str, float]) -> Constants:
    """``constants`` with other values, by name."""
    changed: dict[str, Any] = dict(values)
    return replace(constants, **changed)


@dataclass(frozen=True)
class Calibration:
    """What ``run_search.py calibrate`` found on one device.

    Args:
        device: Architecture and compute units.
        name: Of the device, for display.
        date: Of the measurement, ``2026-11-30``.
        versions: Of torch, Triton and the toolkit.
        measured_us: Microseconds of one repetition of each probe.
        clock_mhz: Of the compute units; None where the model knows nothing of the device, as the following are empty.
        constants: Values of :class:`~search.gfx950.model.constants.Constants` by name.
        launch_us: Of the project's own harness.
        extra_kernel_us: The same.
        hbm_tbs: (active workgroups, TB/s).
    """

    device: DeviceKey
    name: str
    date: str
    versions: Mapping[str, str]
    measured_us: Mapping[str, float]
    clock_mhz: float | None = None
    constants: Mapping[str, float] = field(default_factory=dict)
    launch_us: float = 0.0
    extra_kernel_us: float = 0.0
    hbm_tbs: tuple[tuple[int, float], ...] = ()

    def model(self, *, warm: bool = False) -> Model | None:
        """What predictions on this device are made with; None where the model does not know it."""
        machine = machine_of(self.device)
        if machine is None or self.clock_mhz is None:
            return None
        harness = self._harness(WARM if warm else COLD)
        constants = with_values(CONSTANTS, self.constants)
        return Model(replace(machine, clock_mhz=self.clock_mhz, harness=harness), constants, self.date)

    def _harness(self, usual: Harness) -> Harness:
        return replace(
            usual,
            name=f"{usual.name}-calibrated-{self.date}",
            launch_us=self.launch_us,
            extra_kernel_us=self.extra_kernel_us,
            formula_us=self.launch_us + usual.formula_us - usual.launch_us,
            hbm_tbs=self.hbm_tbs,
        )


def device_of(text: str) -> DeviceKey:
    """The device that ``text`` names, as ``gfx950-256cu``.

    Raises:
        InputError: It names none.
    """
    arch, _, units = text.removesuffix("cu").rpartition("-")
    try:
        return DeviceKey(arch, int(units))
    except ValueError as error:
        raise InputError(f"{text!r} names no device; write its architecture and units, as gfx950-256cu") from error


def path_of(device: DeviceKey) -> Path:
    """The file of ``device``: ``calibration/gfx950-256cu.json`` in the user's folder for data."""
    return user_data() / "calibration" / f"{device}.json"


def load_calibration(device: DeviceKey) -> Calibration | None:
    """What was measured on ``device`` on this machine; None where nothing was.

    Raises:
        InputError: The file is not one of ours.
    """
    path = path_of(device)
    try:
        fields = json.loads(path.read_text())
        if fields.pop("format") != FORMAT:
            raise ValueError("another format")
        points = tuple((int(count), float(tbs)) for count, tbs in fields.pop("hbm_tbs"))
        return Calibration(device=DeviceKey(**fields.pop("device")), hbm_tbs=points, **fields)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        cure = "run `run_search.py calibrate` again, or remove the file"
        raise InputError(f"{path}: cannot be read as a calibration ({error}); {cure}") from error


def to_json(calibration: Calibration) -> str:
    """What :func:`load_calibration` reads."""
    return json.dumps({"format": FORMAT, **asdict(calibration)}, indent=1) + "\n"


def model_of(device: DeviceKey) -> Model | None:
    """What predictions for ``device`` are made with here: as it was calibrated, else as the model knows it.

    Raises:
        InputError: The calibration cannot be read.
    """
    machine = machine_of(device)
    if machine is None:
        return None
    calibration = load_calibration(device)
    return (calibration and calibration.model()) or Model(machine)
