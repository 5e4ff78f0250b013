"""What a sweep may search for, and the evaluator that judges candidates for it on this machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from kernels.device import GFX950, DeviceKey
from kernels.errors import InputError
from kernels.wording import counted, instead_of
from search.device.inventory import GpuFacts, alike, local_gpus, others_note
from search.device.telemetry import ABSENT_NOTE, has_amdsmi
from search.device.timing import COLD, WARM, TimingProtocol
from search.device.visible import why_no_gpu
from search.evaluators import Evaluator
from search.evaluators.device import DeviceEvaluator
from search.evaluators.offline import OfflineEvaluator
from search.evaluators.replay import PREFIX, ReplayEvaluator, is_replay
from search.workers.cores import lent_cores

SMALLER = DeviceKey(GFX950.arch, GFX950.architecture.cu_counts[1])
TARGETS = ("auto", GFX950.arch, str(SMALLER), "local", "replay:FILE")
OFFLINE = re.compile(rf"{GFX950.arch}(-([1-9]\d{{0,3}})cu)?")  # without a number, the usual device
JOBS_PER_CORE = 4  # worker processes, at most


def make_evaluator(
    target: str,
    *,
    jobs: int | None = None,
    warm: bool = False,
    cache: Path | None = None,
    note: Callable[[str], None] = lambda line: None,
) -> Evaluator:
    """The evaluator for ``target`` on this machine.

    Args:
        target: One of :data:`TARGETS`; ``GFX950`` with any number of compute units, as :data:`SMALLER`, is offline.
        jobs: Worker processes; None takes one a core.
        warm: Time with operands that stay in the GPU's cache.
        cache: Folder of compiled kernels; None takes the user's cache folder.
        note: Told, in one line each, what the user may not expect of the choice.

    Raises:
        InputError: Unknown target, ``local`` on a machine without a GPU, a recorded sweep that cannot be read, or
            no folder for compiled kernels that can be written.
    """
    if is_replay(target):
        return ReplayEvaluator(Path(target.removeprefix(PREFIX)))
    offline = OFFLINE.fullmatch(target)
    if offline is None and target not in TARGETS:
        raise InputError(f"unknown target {target!r}; {instead_of(target, TARGETS)}")
    if offline is None:
        gpus = local_gpus()
        if gpus:
            return _measuring(gpus, jobs, WARM if warm else COLD, note)
        reason = why_no_gpu()
        if target == "local":
            cure = f"use --target {GFX950.arch} to search without one"
            raise InputError(f"--target local: {reason or f'torch finds no GPU here; {cure}'}")
        if reason is not None:
            note(f"nothing is measured: {reason}")
    cu_count = int(offline[2] or GFX950.cu_count) if offline else GFX950.cu_count
    evaluator = OfflineEvaluator(DeviceKey(GFX950.arch, cu_count), jobs=jobs, cache=cache)
    if evaluator.calibrated is not None:
        note(f"times are predicted with what `calibrate` measured on {evaluator.device} on {evaluator.calibrated}")
    return evaluator


def _measuring(
    gpus: Sequence[GpuFacts], jobs: int | None, protocol: TimingProtocol, note: Callable[[str], None]
) -> DeviceEvaluator:
    """Measure on the GPUs that are alike; the rest is named."""
    used = alike(gpus)
    left = others_note(gpus, used)
    if left is not None:
        note(left)
    first = used[0]
    if first.key.is_amd and not has_amdsmi():
        note(ABSENT_NOTE)
    indices = [gpu.index for gpu in used]
    return DeviceEvaluator(first.key, jobs=jobs, protocol=protocol, gpus=indices, product=first.product)


def check_jobs(jobs: int | None) -> None:
    """Refuse numbers of worker processes that would only get into each other's way.

    Raises:
        InputError: Less than one, or more than :data:`JOBS_PER_CORE` for each core.
    """
    cores = lent_cores()
    most = JOBS_PER_CORE * cores
    if jobs is not None and not 1 <= jobs <= most:
        lent = counted(cores, "core")
        raise InputError(f"--jobs {jobs}: this machine lends {lent}; give 1 to {most}, or leave it out")


ENGINES = ("local", "ray")


def make_cluster(
    target: str,
    address: str | None,
    *,
    warm: bool = False,
    cache: Path | None = None,
    note: Callable[[str], None] = lambda line: None,
) -> Evaluator:
    """The evaluator for ``target`` on the nodes of a Ray cluster.

    Args:
        target: As :func:`make_evaluator`; ``auto`` is offline: what is measured has to be asked for, as ``local``.
        address: See :class:`search.evaluators.cluster.ClusterEvaluator`.

    Raises:
        InputError: As there, or a target that nobody has to judge.
    """
    from search.evaluators.cluster import ClusterEvaluator, MeasuringCluster  # Ray is an extra

    if is_replay(target):
        raise InputError(f"--engine ray: {target} is read, not judged; leave --engine out")
    offline = GFX950.arch if target == "auto" else target
    if target != "local" and OFFLINE.fullmatch(offline) is None:
        raise InputError(f"unknown target {target!r}; {instead_of(target, TARGETS)}")
    make = partial(_on_node, target=offline, warm=warm, cache=cache)
    if target == "local":
        return MeasuringCluster(make, address=address, note=note)
    return ClusterEvaluator(make, address=address, note=note)


def _on_node(jobs: int, *, target: str, warm: bool, cache: Path | None) -> Evaluator:
    return make_evaluator(target, jobs=jobs, warm=warm, cache=cache)


def check_engine(engine: str, address: str | None = None) -> None:
    """Raise InputError for an unknown name, and for an address that the engine would not go to."""
    if engine not in ENGINES:
        raise InputError(f"unknown engine {engine!r}; {instead_of(engine, ENGINES)}")
    if address is not None and engine != "ray":
        raise InputError(f"--address {address} is of a Ray cluster; give --engine ray too, or leave it out")
