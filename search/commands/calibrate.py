"""Measure the timing model's constants on this machine's GPU, and keep them for later predictions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

import torch
import triton

from kernels.device import DeviceKey
from kernels.disk import default_cache, writable_cache, write_atomically
from kernels.errors import InputError, KernelError
from search.device.calibration.measure import measured
from search.device.calibration.probes import Probe, probes_of
from search.device.calibration.solve import calibration_of, executed, solved, start_of
from search.device.gpu import Gpu, Origin
from search.device.inventory import local_gpus
from search.device.visible import why_no_gpu
from search.evaluation import SIMULATED
from search.gfx950.code.artifacts import ArtifactCache
from search.gfx950.machine import machine_of
from search.gfx950.model.calibrated import Calibration, Model, path_of, to_json

SIMULATED_SHARE = 1 / 256  # of the repetitions: what the simulator executes is one workgroup and the same a repetition
BRIEF_SHARE, BRIEF_UNITS = 1 / 1024, 2  # of a rehearsal: repetitions, compute units
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Calibrated:
    """What a calibration found.

    Args:
        calibration: Stored where ``stored`` says so.
        values: Constants of the model that were solved, as (name, usual value, value here); empty where the model does
            not know the device.
    """

    calibration: Calibration
    values: tuple[tuple[str, float, float], ...]
    stored: bool


def calibrate(tell: Tell, *, brief: bool = False) -> Calibrated:
    """Run every probe on the first GPU of this process, solve for the constants, and store both.

    Args:
        tell: Hears one line a probe.
        brief: Few repetitions on two compute units: to see that everything runs, not to measure. Nothing is stored.

    Raises:
        InputError: There is no GPU, or a probe fails on it.
    """
    if not local_gpus():
        raise InputError(f"calibrate measures on a GPU: {why_no_gpu() or 'torch finds none here'}")
    gpu = Gpu()
    origin = gpu.origin()
    device = DeviceKey(origin.device.arch, min(BRIEF_UNITS, origin.device.cu_count)) if brief else origin.device
    probes = probes_of(device, gpu.cache_bytes(), share=BRIEF_SHARE if brief else 1.0)
    calibration = _measure(probes, gpu, replace(origin, device=device), tell)
    values: tuple[tuple[str, float, float], ...] = ()
    machine = machine_of(device)
    if machine is not None:
        calibration, values = _solve(calibration, start_of(machine))
    simulated = origin.product is not None and origin.product.name == SIMULATED
    stored = not (brief or simulated)
    if stored:
        store(calibration)
    return Calibrated(calibration, values, stored)


def _measure(probes: Sequence[Probe], gpu: Gpu, origin: Origin, tell: Tell) -> Calibration:
    start = time.monotonic()

    def told(probe: Probe, us: float) -> None:
        tell(f"{probe.name:16} {probe.shown(us):10.4g} {probe.unit}  ({time.monotonic() - start:.0f} s)")

    try:
        found = measured(probes, gpu, told)
    except KernelError as error:
        raise InputError(f"calibrate: {error}; is another process using the GPU? Run it again") from error
    versions = {"torch": torch.__version__, "triton": triton.__version__, "toolkit": origin.rocm_or_cuda}
    return Calibration(origin.device, origin.device_name, date.today().isoformat(), versions, found)


def _solve(calibration: Calibration, start: Model) -> tuple[Calibration, tuple[tuple[str, float, float], ...]]:
    machine = start.machine
    cache_bytes = calibration.device.architecture.cache_bytes
    assert cache_bytes is not None, "what has a model has a row"
    cache = ArtifactCache(writable_cache(default_cache()))
    chosen = probes_of(calibration.device, cache_bytes, share=SIMULATED_SHARE)
    probes = [executed(one, machine, cache) for one in chosen]
    model, found = solved(calibration.measured_us, probes, start)
    return calibration_of(model, found, calibration), tuple(_compared(found, start))


def _compared(found: Mapping[str, float], start: Model) -> Iterator[tuple[str, float, float]]:
    places = (start.constants, start.machine, start.machine.harness)
    for name, value in found.items():
        usual = next((getattr(place, name) for place in places if hasattr(place, name)), None)
        part = name.removeprefix("hbm_tbs at ")
        yield name, float(start.machine.hbm_bandwidth_tbs(int(part)) if usual is None else usual), value


def store(calibration: Calibration) -> None:
    """Keep ``calibration`` with its device.

    Raises:
        InputError: The folder cannot be made or written.
    """
    path = path_of(calibration.device)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        cure = "set XDG_DATA_HOME to a folder that can be written"
        raise InputError(f"{path.parent}: cannot be made ({error.strerror}); {cure}") from error
    write_atomically(path, to_json(calibration).encode())


def forget(device: DeviceKey) -> bool:
    """Remove what was stored of ``device``; whether there was something."""
    path = path_of(device)
    there = path.exists()
    path.unlink(missing_ok=True)
    return there
