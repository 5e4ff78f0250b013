"""What a bad candidate costs on a real GPU: out of bounds, endless, NaN, killed; and what a killed sweep leaves.

Usage: python benchmarks/device_faults.py [--killed-only] [--output FILE.json]

Real kernels go through the real lane and worker process. Prints the outcome of each, the time from its end to the
next measurement, and what runs on the GPU after this process's own workers were closed. Exit code 2, with what the
sweep said, where that ends by itself or stores nothing, so that there is nothing to kill. A full disk has a program
of its own, benchmarks/full_disk.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import triton
import triton.language as tl
import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gpu_processes import descendants, gpu_processes
from required import required_gpu

from kernels.device import DeviceKey
from kernels.errors import InputError
from kernels.families import FAMILIES
from kernels.problem import GemmShape
from kernels.runtime.plan import LoadedProgram
from search.device.gpu import Gpu
from search.device.lane import GpuLane, Job, TaskLimits
from search.device.measure import Answer, MeasureTask, StandBy, Task, baseline, this_gpu, work
from search.device.timing import COLD
from search.device.visible import see_only
from search.evaluation import Candidate, FinalTimes
from search.evaluators.device import begin_compiling, compile_candidate
from search.results.stored import stored_frame
from search.terminal import one_line_errors
from search.workers.pool import WorkerPool

SHAPE = GemmShape(16, 2112, 7168)
# By GROUP_M: numbers that no default has, as the baseline is always fine.
WAYS = {3: "fine", 5: "out of bounds write", 7: "endless loop", 9: "NaN result", 11: "killed by signal 9"}
FINE = 3
RUN_TIMEOUT_S = 12.0
SWEEP_START_S = 90.0  # until the first trials of a sweep are stored
FIRST_TRIALS = 5  # after which it is killed
ROOT = Path(__file__).resolve().parent.parent
SWEEP = (
    sys.executable, "run_search.py", "sweep", str(SHAPE), "32x2880x512", "--target", "local", "--trials", "100000",
    "--sampler", "random", "--families", "fused", "--jobs", "4", "--results",
)  # fmt: skip


@triton.jit
def out_of_bounds_kernel(x_ptr, far):  # type: ignore[no-untyped-def]
    """Write 4 TB behind the buffer."""
    tl.store(x_ptr + far.to(tl.int64) * (1 << 20) + tl.arange(0, 128), 1.0)


@triton.jit
def endless_kernel(x_ptr, stop):  # type: ignore[no-untyped-def]
    """Spin on a value that nobody writes."""
    value = tl.atomic_add(x_ptr, 0.0)
    while value < stop:
        value = tl.atomic_add(x_ptr, 0.0)
    tl.store(x_ptr + 1, value)


@dataclass(eq=False)
class FaultyGpu(Gpu):
    """The GPU, with a fault in front of every launch."""

    way: str = "fine"

    def __post_init__(self) -> None:
        super().__init__()

    def launch(self, loaded: LoadedProgram, tensors: Mapping[str, torch.Tensor]) -> None:
        """Launch ``loaded``, then the fault."""
        super().launch(loaded, tensors)
        buffer = torch.zeros(1024, device=self.torch_device)
        if self.way == "out of bounds write":
            out_of_bounds_kernel[(64,)](buffer, 1 << 20)
        elif self.way == "endless loop":
            endless_kernel[(1,)](buffer, 1.0)
        elif self.way == "NaN result":
            tensors["out"][3, 5] = torch.nan
        elif self.way == "killed by signal 9":
            time.sleep(600)


def faulty_work(task: Task, *, pids: Path) -> Answer:
    """In the worker: the baseline is fine, a candidate behaves as its GROUP_M says."""
    if isinstance(task, StandBy):
        return FinalTimes(())
    pids.write_text(str(os.getpid()))
    assert isinstance(task, MeasureTask)
    gpu = this_gpu()
    is_baseline = task.candidate == baseline(SHAPE, gpu.origin().device)
    way = "fine" if is_baseline else WAYS[int(task.candidate.config.to_dict()["GROUP_M"])]
    return work(task, gpu if way == "fine" else FaultyGpu(way=way))


def kill_when_idle(pids: Path, after_s: float) -> None:
    """From outside: signal 9 to the worker."""
    time.sleep(after_s)
    os.kill(int(pids.read_text()), signal.SIGKILL)


def run_faults(pids: Path, device: DeviceKey) -> Iterator[dict[str, Any]]:
    """Each fault between two fine candidates; how long until the second is measured."""
    compile_all(device)
    pool, spare = (WorkerPool[Task, Answer](partial(faulty_work, pids=pids), 1, partial(see_only, 0)) for _ in range(2))
    lane = GpuLane(0, pool, COLD, TaskLimits(run_s=RUN_TIMEOUT_S), spare=spare)
    lane.put_baseline(baseline(SHAPE, device))
    submit(lane, candidate(FINE, device)).result()
    for group, way in WAYS.items():
        ended: dict[str, float] = {}
        bad = submit(lane, candidate(group, device), ended, "bad")
        good = submit(lane, candidate(FINE, device), ended, "good")
        if way == "killed by signal 9":
            threading.Thread(target=kill_when_idle, args=(pids, 2.0)).start()
        outcome, next_one = bad.result(), good.result()
        yield {
            "fault": way, "outcome": outcome.outcome, "reason": outcome.reason[:100], "next": next_one.outcome,
            "next_us": next_one.objective_us, "baseline_us": next_one.facts.get("baseline_us"),
            "to_next_measurement_s": ended["good"] - ended["bad"],
        }  # fmt: skip
    lane.close()


def compile_all(device: DeviceKey) -> None:
    """Compile the candidates ahead, as the evaluator does."""
    compiler = WorkerPool(partial(compile_candidate, device=device), 4, partial(begin_compiling, device))
    wanted = [baseline(SHAPE, device), *(candidate(group, device) for group in WAYS)]
    for done in [compiler.submit(one, 120.0) for one in wanted]:
        done.result()
    compiler.close()


def candidate(group: int, device: DeviceKey) -> Candidate:
    """The candidate that behaves as ``WAYS`` says of ``group``: the default, which is legal everywhere."""
    default = baseline(SHAPE, device)
    return replace(default, config=FAMILIES[default.family].config({**default.config.to_dict(), "GROUP_M": group}))


def submit(lane: GpuLane, one: Candidate, ended: dict[str, float] | None = None, name: str = "") -> Future[Any]:
    """Queue ``one``; ``ended`` gets the time when it was answered."""
    answer: Future[Any] = Future()
    if ended is not None:
        answer.add_done_callback(lambda done: ended.__setitem__(name, time.monotonic()))
    lane.put(Job(MeasureTask(one, COLD), answer))
    return answer


def state(pid: str) -> str:
    """State letter of a process as /proc gives it, Z for one that only waits to be reaped; "" where it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def runs(pid: str) -> bool:
    """Whether the process is there and no zombie that waits for its new parent."""
    return state(pid) not in ("", "Z")


def stored(results: Path) -> int:
    """Trials in a results folder that a sweep may be writing."""
    try:
        return len(stored_frame(results))
    except InputError:
        return 0


def killed_parent(sweep: Sequence[str] = SWEEP, start_s: float = SWEEP_START_S) -> dict[str, Any]:
    """Signal 9 to a sweep that measures: how long its workers live on, and what is left of them and of its trials.

    Args:
        sweep: Command that takes the results folder as its last argument.
        start_s: Until its first trials are stored.

    Raises:
        InputError: There was nothing to kill: it ended by itself, or stored too few trials in time.
    """
    with tempfile.TemporaryDirectory() as folder:
        before, workers = killed_once_measuring([*sweep, folder], Path(folder), start_s)
        killed_s = time.monotonic()
        while any(map(runs, workers)) and time.monotonic() - killed_s < 30:
            time.sleep(0.05)
        gone_after_s = time.monotonic() - killed_s
        return {
            "fault": "parent killed by signal 9", "stored_before": before, "stored_after": stored(Path(folder)),
            "children": len(workers), "left": [command(pid) for pid in workers if runs(pid)],
            "zombies": sum(state(pid) == "Z" for pid in workers), "gone_after_s": gone_after_s,
            "on_gpu": gpu_processes(),
        }  # fmt: skip


def killed_once_measuring(sweep: Sequence[str], results: Path, start_s: float) -> tuple[int, list[str]]:
    """Trials that a sweep had stored when it was killed, and the processes that it had started."""
    with tempfile.TemporaryFile("w+") as said:
        parent = subprocess.Popen(sweep, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=said)
        try:
            why_not = never_measured(parent, results, start_s)
            workers, before = descendants(str(parent.pid)), stored(results)
        finally:
            parent.kill()
            code = parent.wait()
        if code != -signal.SIGKILL:
            why_not = f"ended by itself with exit code {code}"
        said.seek(0)
        words = said.read()
    print(words, end="", file=sys.stderr, flush=True)
    if why_not:
        raise InputError(f"the sweep to be killed {why_not}, {before} trials stored; {last_line(words)}")
    return before, workers


def never_measured(sweep: subprocess.Popen[bytes], results: Path, start_s: float) -> str:
    """Wait for the first trials of a sweep; "" when they are stored, else why they never were."""
    end_s = time.monotonic() + start_s
    while time.monotonic() < end_s:
        if stored(results) >= FIRST_TRIALS:
            return ""
        if sweep.poll() is not None:
            return f"ended by itself with exit code {sweep.returncode}"
        time.sleep(0.5)
    return f"stored fewer than {FIRST_TRIALS} trials in {start_s:.0f} s"


def last_line(words: str) -> str:
    """What a program said last on its error stream."""
    lines = words.strip().splitlines()
    return f"it said: {lines[-1].strip()}" if lines else "it said nothing"


def command(pid: str) -> str:
    """What a process was started as, with its state."""
    return f"{state(pid)} " + Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")


def keep(row: dict[str, Any], output: Path | None) -> None:
    """Print a row and append it to ``output`` at once: whatever ends this program leaves what was found."""
    print(row, flush=True)
    if output is not None:
        with output.open("a") as file:
            file.write(json.dumps(row) + "\n")


def main(
    killed_only: Annotated[bool, typer.Option("--killed-only", help="Only the sweep that is killed.")] = False,
    output: Annotated[
        Path | None, typer.Option(help="JSON lines, a fault each; a file that is there is replaced.")
    ] = None,
) -> None:
    """Run every fault."""
    device = required_gpu()
    if output is not None:
        output.unlink(missing_ok=True)
    if not killed_only:
        with tempfile.TemporaryDirectory() as folder:
            for row in run_faults(Path(folder) / "pid", device):
                keep(row, output)
    keep(killed_parent(), output)
    print("on the GPU now:", gpu_processes() or "nothing")


if __name__ == "__main__":
    with one_line_errors():
        typer.run(main)
