"""What a GPU's disposable worker process does: check a candidate, then time it; re-time finalists side by side."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from kernels.errors import KernelError
from kernels.families import FAMILIES
from kernels.families.defaults import default_choice
from kernels.launches.program import Loaded
from kernels.problem import GemmShape
from kernels.runtime.plan import LoadedProgram
from search.device.check import (
    SEEDS,
    CheckedInput,
    Tensors,
    check,
    check_replay,
    checked_input,
    copies_of,
    outputs_of,
    set_bytes,
    working_tensors,
)
from search.device.gpu import Gpu, GpuFaultError, Origin, kernel_error
from search.device.peaks import floor_us, roofline_us
from search.device.product import protocol_on
from search.device.served import dispatcher_launch
from search.device.telemetry import GpuState
from search.device.timing import (
    BrokenMeasurementError,
    Launch,
    Timing,
    TimingProtocol,
    check_floor,
    median_interval,
    sample_until_sure,
)
from search.evaluation import Candidate, Evaluation, FinalTimes, Value

SHAPES_KEPT = 4  # of which a GPU holds operands: of three searches, and of one that holds its finals
SMALL = GemmShape(16, 256, 256)  # whose reference opens the GPU and loads the libraries of all others
MOST_ROUNDS = 64  # of a sample that is lengthened: a graph of some thousand launches


@dataclass(frozen=True)
class MeasureTask:
    """Check and time one candidate.

    Args:
        best_us: Time of the best so far at this shape; None before the first.
    """

    candidate: Candidate
    protocol: TimingProtocol
    best_us: float | None = None


@dataclass(frozen=True)
class FinalTask:
    """Time candidates of one shape in turn, in a new random order each round.

    Args:
        candidates: Each was checked before.
        protocol: Gives the copies that launches go round.
        dispatched: Time the first candidate through the dispatcher as well.
    """

    candidates: tuple[Candidate, ...]
    protocol: TimingProtocol
    rounds: int
    seed: int = 0
    dispatched: bool = False


@dataclass(frozen=True)
class StandBy:
    """Be ready: the process has imported what it needs.

    Args:
        opened: Open the GPU too, and load what makes references, which takes seconds; a spare process leaves it alone.
    """

    opened: bool = False


Task = MeasureTask | FinalTask | StandBy
Answer = Evaluation | FinalTimes


@lru_cache(maxsize=1)
def this_gpu() -> Gpu:
    """The GPU of this process."""
    return Gpu()


def run_task(task: Task) -> Answer:
    """Do ``task`` on this process's GPU; nothing was measured for a :class:`StandBy`.

    Raises:
        GpuFaultError: The GPU's context is broken; the process must end.
    """
    if not isinstance(task, StandBy):
        return work(task, this_gpu())
    if task.opened:
        checked_input(SMALL, SEEDS[0], this_gpu().torch_device)
    return FinalTimes(())


def work(task: MeasureTask | FinalTask, gpu: Gpu) -> Answer:
    """Do ``task`` on ``gpu``; raises as its function does."""
    if isinstance(task, MeasureTask):
        return measure(task, gpu)
    try:
        return measure_finals(task, gpu)
    except RuntimeError as error:
        raise (kernel_error(error, gpu) or error) from error


def measure(task: MeasureTask, gpu: Gpu) -> Evaluation:
    """Check and time one candidate; a configuration's fault is its outcome.

    Raises:
        GpuFaultError: The context is broken.
        RuntimeError: A bug, or a broken installation.
    """
    facts: dict[str, Value] = _origin_facts(gpu.origin(), task.protocol) | {"checked_on": "device"}
    try:
        timing = _judge(task, gpu, facts)
    except GpuFaultError:
        raise
    except KernelError as error:
        return Evaluation(error.outcome, str(error), facts=facts)  # type: ignore[arg-type]
    except RuntimeError as error:
        found = kernel_error(error, gpu)
        if found is None or isinstance(found, GpuFaultError):
            raise (found or error) from error
        return Evaluation(found.outcome, str(found), facts=facts)  # type: ignore[arg-type]
    facts |= _timing_facts(timing) | _state_facts(gpu.state())
    if timing.slow:
        reason = f"stopped after {timing.samples} samples: clearly slower than {task.best_us:.2f} us"
        return Evaluation("slow", reason, "measured", timing.median_us, facts)
    return Evaluation("ok", "", "measured", timing.median_us, facts)


def _judge(task: MeasureTask, gpu: Gpu, facts: dict[str, Value]) -> Timing:
    candidate, shape = task.candidate, task.candidate.shape
    program = FAMILIES[candidate.family].program(shape, candidate.config)
    inputs = inputs_of(shape, gpu)
    working = working_tensors(program, gpu.torch_device)
    loaded = gpu.load(program, inputs[0].tensors | working)
    facts |= _loaded_facts(loaded.kernels)
    checked = check(loaded, inputs, working, gpu, facts)
    facts["deterministic"] = checked and FAMILIES[candidate.family].is_deterministic(candidate.config)
    key = gpu.origin().device
    facts["roofline_us"] = roofline_us(shape, key)
    exact = bool(facts["deterministic"])
    timing = time_program(loaded, shape, gpu, task.protocol, working=working, best_us=task.best_us, exact=exact)
    check_floor(timing, floor_us(shape, key, cold=task.protocol.cold))
    return timing


@lru_cache(maxsize=SHAPES_KEPT)
def inputs_of(shape: GemmShape, gpu: Gpu) -> tuple[CheckedInput, ...]:
    """Operands and references of ``shape``; those of the latest shapes are kept."""
    return tuple(checked_input(shape, seed, gpu.torch_device) for seed in SEEDS)


@lru_cache(maxsize=SHAPES_KEPT)
def rotation_of(shape: GemmShape, gpu: Gpu, protocol: TimingProtocol) -> tuple[Tensors, ...]:
    """Sets of operands and outputs that launches of ``shape`` go round; those of the latest shapes are kept."""
    operands = inputs_of(shape, gpu)[0].tensors
    one = set_bytes(operands) + 2 * shape.M * shape.N
    return tuple(copies_of(operands, shape, protocol.copies(one, gpu.cache_bytes())))


def time_program(
    loaded: LoadedProgram,
    shape: GemmShape,
    gpu: Gpu,
    protocol: TimingProtocol,
    *,
    working: Tensors,
    best_us: float | None,
    exact: bool,
) -> Timing:
    """Time of ``loaded``, which has run before; its workspaces are those of ``working``.

    Raises:
        ReplayDiffersError: What is timed is not what was checked; ``exact`` as in :func:`check_replay`.
    """
    sets = rotation_of(shape, gpu, protocol)
    shared = {name: tensor for name, tensor in working.items() if name != "out"}
    launches = [partial(gpu.launch, loaded, one | shared) for one in sets]
    graph, count = captured(launches, sets, gpu, protocol, exact=exact)
    host_us = host_launch_us(gpu, launches[0])
    timing = sample_until_sure(partial(gpu.replay_us, graph), protocol, count, best_us=best_us)
    rotated = set_bytes(sets[0]) * len(launches) if protocol.cold else 0
    return replace(timing, rotated_bytes=rotated, host_launch_us=host_us)


def host_launch_us(
    gpu: Gpu, launch: Launch, *, count: int = 20, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Median time that the host spends in ``launch``, in microseconds; the GPU's own time is not waited for."""
    taken = []
    for _ in range(count):
        gpu.synchronize()
        start_s = clock()
        launch()
        taken.append((clock() - start_s) * 1e6)
    gpu.synchronize()
    return float(np.median(taken))


def captured(
    launches: Sequence[Launch], sets: Sequence[Tensors], gpu: Gpu, protocol: TimingProtocol, *, exact: bool
) -> tuple[Any, int]:
    """A graph of one sample of ``launches``, one a set, and their number; a replay was compared with a plain launch.

    The sample is as long as the GPU's events need to be exact, in whole rounds over the sets.

    Raises:
        ReplayDiffersError: What would be timed is not what was checked.
    """
    count = protocol.launches_per_sample(set_bytes(sets[0]), len(sets))
    graph = gpu.capture(repeated(launches, count))
    check_replay(graph, launches[0], outputs_of(sets), gpu, exact=exact)
    if not gpu.least_sample_us:
        return graph, count
    sample_us = gpu.replay_us(graph, 1)[0]
    rounds = min(MOST_ROUNDS, math.ceil(gpu.least_sample_us / sample_us)) if sample_us > 0 else 1
    if rounds <= 1:
        return graph, count
    longer = gpu.capture(repeated(launches, rounds * count))
    check_replay(longer, launches[0], outputs_of(sets), gpu, exact=exact)
    return longer, rounds * count


def measure_finals(task: FinalTask, gpu: Gpu) -> FinalTimes:
    """Sample every candidate once a round, in random order.

    Raises:
        GpuFaultError: The context is broken, or a replay differs from its launches.
        BrokenMeasurementError: A time that cannot be.
    """
    shape = task.candidates[0].shape
    sets = rotation_of(shape, gpu, task.protocol)
    contenders = [launches_of(candidate, sets, gpu) for candidate in task.candidates]
    if task.dispatched:
        contenders.append(dispatcher_launch(task.candidates[0], sets, gpu.origin().device))
    graphs = []
    for launches in contenders:
        launches[0]()  # loads what is not loaded, which a capture must not
        gpu.synchronize()
        graphs.append(captured(launches, sets, gpu, task.protocol, exact=False))
    return timed_rounds(graphs, gpu, task.rounds, task.seed)


def repeated(launches: Sequence[Launch], count: int) -> list[Launch]:
    """``count`` launches that go round ``launches``."""
    return [launches[i % len(launches)] for i in range(count)]


def timed_rounds(graphs: Sequence[tuple[Any, int]], gpu: Gpu, rounds: int, seed: int) -> FinalTimes:
    """Time of one launch of each graph [round][graph]; the order within a round is random.

    Args:
        graphs: Each with the number of its launches.
    """
    order = random.Random(seed)
    return FinalTimes(tuple(_round(graphs, gpu, order) for _ in range(rounds)))


def launches_of(candidate: Candidate, sets: Sequence[Tensors], gpu: Gpu) -> list[Launch]:
    """Launches of ``candidate``, one a set, that share workspaces."""
    program = FAMILIES[candidate.family].program(candidate.shape, candidate.config)
    shared = working_tensors(program, gpu.torch_device)
    del shared["out"]  # each set has its own
    loaded = gpu.load(program, sets[0] | shared)
    return [partial(gpu.launch, loaded, one | shared) for one in sets]


def _round(graphs: Sequence[tuple[Any, int]], gpu: Gpu, order: random.Random) -> tuple[float, ...]:
    turn = list(range(len(graphs)))
    order.shuffle(turn)
    times = dict.fromkeys(turn, 0.0)
    for i in turn:
        graph, launches = graphs[i]
        times[i] = median_interval(gpu.replay_us(graph, 3))[1] / launches
        if not times[i] > 0:
            raise BrokenMeasurementError(f"broken measurement: a replay took {times[i]} us")
    return tuple(times[i] for i in range(len(graphs)))


def baseline(shape: GemmShape, gpu_key: Any) -> Candidate:
    """The family default of ``shape``: shows what a GPU does, at the start and after a fault."""
    return Candidate(shape, *default_choice(shape, gpu_key))


def _origin_facts(origin: Origin, protocol: TimingProtocol) -> dict[str, Value]:
    return {
        "device_name": origin.device_name, "rocm_or_cuda": origin.rocm_or_cuda, "driver": origin.driver,
        "protocol": protocol_on(str(protocol), origin.product),
    }  # fmt: skip


def _loaded_facts(loaded: Sequence[Loaded]) -> dict[str, Value]:
    """Of the kernel with the largest demand: the GEMM, if Triton made it."""
    if not all(one.registers for one in loaded):
        return {"kernels": len(loaded)}
    gemm = max(loaded, key=lambda one: (one.lds_bytes, one.registers))
    return {
        "vgprs": gemm.registers, "spills": gemm.spills, "lds_bytes": gemm.lds_bytes, "kernels": len(loaded),
    }  # fmt: skip


def _timing_facts(timing: Timing) -> dict[str, Value]:
    return {
        "time_lo_us": timing.lo_us, "time_hi_us": timing.hi_us, "samples": timing.samples,
        "host_launch_us": timing.host_launch_us, "rotated_bytes": timing.rotated_bytes,
    }  # fmt: skip


def _state_facts(state: GpuState) -> dict[str, Value]:
    return {"clock_mhz": state.clock_mhz, "power_w": state.power_w, "gpu_notes": "; ".join(state.notes) or None}
