"""Time probes on a GPU: what one repetition takes, after a launch was checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch

from kernels.launches.program import Program
from search.device.calibration.probes import Probe
from search.device.gpu import Gpu
from search.device.timing import BrokenMeasurementError, TimingProtocol, sample_until_sure

PROTOCOL = TimingProtocol("warm-graph-v1", cold=False, half_width=0.005, budget_s=1.0)
MOST_LAUNCHES = 256  # of a graph
LEAST_SAMPLE_US = 500.0  # of a replay; one that is shorter than its submission by the host (15 us) times that instead
TRUSTED = 0.02  # of a time: a difference of two that is less is noise


def measured(probes: Sequence[Probe], gpu: Gpu, told: Callable[[Probe, float], None]) -> Mapping[str, float]:
    """Microseconds of one repetition of each probe by name; ``told`` hears of each when it is there.

    Raises:
        BrokenMeasurementError: A kernel computed something else, or more repetitions took no longer.
        KernelError: The compiler or the GPU refuses a kernel.
    """
    found = {}
    for probe in probes:
        found[probe.name] = repetition_us(probe, gpu)
        told(probe, found[probe.name])
    return found


def repetition_us(probe: Probe, gpu: Gpu) -> float:
    """Microseconds of one repetition."""
    few, many = probe.counts
    low = launch_us(probe, few, gpu) if few else 0.0
    high = launch_us(probe, many, gpu)
    if high - low < TRUSTED * high:
        raise BrokenMeasurementError(f"{probe.name}: {many} repetitions took {high:.3f} us, {few} took {low:.3f} us")
    return (high - low) / (many - few)


def launch_us(probe: Probe, count: int, gpu: Gpu) -> float:
    """Median time of a launch with ``count`` repetitions, in microseconds; its result was checked."""
    program = probe.program(count)
    tensors = probe.tensors(count, gpu.torch_device)
    launch = partial(gpu.launch, gpu.load(program, tensors), tensors)
    launch()
    gpu.synchronize()
    check_result(probe, count, tensors["out"])
    launches = _launches(launch, program, gpu)
    graph = gpu.capture([launch] * launches)
    return sample_until_sure(partial(gpu.replay_us, graph), PROTOCOL, launches).median_us


def _launches(launch: Callable[[], None], program: Program, gpu: Gpu) -> int:
    """Launches of a graph that takes so long that neither its submission nor the GPU's events count."""
    one_us = max(1.0, gpu.replay_us(gpu.capture([launch]), 1)[0])
    enough = math.ceil(max(LEAST_SAMPLE_US, gpu.least_sample_us) / one_us)
    return max(1, min(MOST_LAUNCHES // len(program.calls), enough))


def check_result(probe: Probe, count: int, out: torch.Tensor) -> None:
    """Compare what one launch wrote with what it must be, bit for bit.

    Raises:
        BrokenMeasurementError: It is something else.
    """
    expected = probe.expected(count)
    wrong = int((out.cpu().view(torch.int32) != expected.view(torch.int32)).sum())
    if wrong:
        raise BrokenMeasurementError(f"{probe.name}: {wrong} of {expected.numel()} results are wrong")
