"""What a sweep may search for, and the evaluator that judges candidates for it on this machine."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from kernels.device import GFX950, DeviceKey
from kernels.errors import InputError
from kernels.wording import counted, instead_of
from search.evaluators import Evaluator
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
    measuring = None if offline else _measuring(target, jobs, warm, note)
    if measuring is not None:
        return measuring
    cu_count = int(offline[2] or GFX950.cu_count) if offline else GFX950.cu_count
    evaluator = OfflineEvaluator(DeviceKey(GFX950.arch, cu_count), jobs=jobs, cache=cache)
    if evaluator.calibrated is not None:
        note(f"times are predicted with what `calibrate` measured on {evaluator.device} on {evaluator.calibrated}")
    return evaluator


def _measuring(target: str, jobs: int | None, warm: bool, note: Callable[[str], None]) -> Evaluator | None:
    """Measure on the GPUs of this machine; None where there are none, and ``target`` does not insist."""
    from search.device.visible import why_no_gpu  # here: torch takes long to load, and other targets need none of it
    from search.evaluators.device import on_local_gpus

    evaluator = on_local_gpus(jobs, warm=warm, note=note)
    if evaluator is not None:
        return evaluator
    reason = why_no_gpu()
    if target == "local":
        cure = f"use --target {GFX950.arch} to search without one"
        raise InputError(f"--target local: {reason or f'torch finds no GPU here; {cure}'}")
    if reason is not None:
        note(f"nothing is measured: {reason}")
    return None


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
