"""How long the gate takes for one candidate: decoding its machine code, then executing and comparing its sample.

    python benchmarks/gate_timing.py [--configurations 110] [--seed 1] [--shapes FILE]

Random legal configurations of every family at the ten shapes of configs/shapes/gpumode.yaml, as gate_campaign.py draws
them, in an order by chance. Each is compiled first, which is not counted. ``new`` makes the operands of its shape anew,
as the first candidate of a search does, ``kept`` has them from the candidates before. Processor seconds tell what an
idle machine would do; wall seconds are those of this one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from gate_campaign import CONFIGS, drawn

from kernels.disk import default_cache
from kernels.errors import KernelError
from kernels.families import FAMILIES
from search.evaluation import Candidate
from search.gate.check import check_program, load_calls
from search.gate.sample import shared_inputs
from search.gfx950.code.artifacts import ArtifactCache
from search.gfx950.code.calls import CompiledCall, check_resources, compile_call
from search.gfx950.machine import MI355X
from search.space.shapes import load_shapes
from search.terminal import TextTable, one_line_errors
from search.workers.allocator import calm_collector

GOAL_S = 0.15
QUANTILES = {"median": 0.5, "p90": 0.9, "longest": 1.0}


@dataclass(frozen=True)
class Seconds:
    """Of one candidate: processor and wall."""

    cpu: float
    wall: float

    def __add__(self, other: Seconds) -> Seconds:
        """One after the other."""
        return Seconds(self.cpu + other.cpu, self.wall + other.wall)


class Clock:
    """Both clocks, from one call to the next."""

    def __init__(self) -> None:
        self._last = (time.process_time(), time.perf_counter())

    def lap(self) -> Seconds:
        """What passed since the last call."""
        before, self._last = self._last, (time.process_time(), time.perf_counter())
        return Seconds(self._last[0] - before[0], self._last[1] - before[1])


def compiled(candidates: Sequence[Candidate]) -> Iterator[tuple[Candidate, list[CompiledCall]]]:
    """Those that compile and fit the machine, with their code."""
    cache = ArtifactCache(default_cache())
    with tempfile.TemporaryDirectory() as logs:
        for candidate in candidates:
            program = FAMILIES[candidate.family].program(candidate.shape, candidate.config)
            try:
                calls = [compile_call(program, call, cache, Path(logs)) for call in program.calls]
                for call in calls:
                    check_resources(call, MI355X)
            except KernelError:
                continue
            yield candidate, calls


def timed(candidate: Candidate, calls: Sequence[CompiledCall]) -> dict[str, Seconds]:
    """Seconds of each part."""
    program = FAMILIES[candidate.family].program(candidate.shape, candidate.config)
    shared_inputs.cache_clear()
    clock = Clock()
    loaded = load_calls(calls)
    decode = clock.lap()
    check_program(program, loaded, candidate.shape)
    new = clock.lap()
    check_program(program, loaded, candidate.shape)
    kept = clock.lap()
    return {
        "decode": decode, "gate, new": new, "gate, kept": kept,
        "decode + gate, new": decode + new, "decode + gate, kept": decode + kept,
    }  # fmt: skip


def table(rows: Sequence[dict[str, Seconds]], clock: str) -> TextTable:
    """Quantiles of each part by one clock."""
    lines = []
    for part in rows[0]:
        seconds = np.array([getattr(row[part], clock) for row in rows])
        quantiles = [f"{np.quantile(seconds, q):.3f}" for q in QUANTILES.values()]
        lines.append((part, *quantiles, f"{(seconds <= GOAL_S).mean():.0%}"))
    return TextTable((f"{clock} s", *QUANTILES, f"<= {GOAL_S} s"), tuple(lines), frozenset(QUANTILES))


def main() -> None:
    """Time and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configurations", type=int, default=110)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shapes", type=Path, default=CONFIGS / "shapes" / "gpumode.yaml")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # as in a sweep's workers
    candidates = list(
        dict.fromkeys(drawn(arguments.configurations, arguments.seed, load_shapes(arguments.shapes).shapes))
    )
    ready = list(compiled(candidates))
    ready = [ready[i] for i in np.random.default_rng(arguments.seed).permutation(len(ready))]
    timed(*ready[0])  # what is made once in a process
    calm_collector()
    rows = []
    for candidate, calls in ready:
        try:
            rows.append(timed(candidate, calls))
        except KernelError as error:
            print(f"{error.outcome}: {candidate}: {error}")
    print(f"{len(rows)} of {len(candidates)} configurations")
    for clock in ("cpu", "wall"):
        print(table(rows, clock).plain())


if __name__ == "__main__":
    with one_line_errors():
        main()
