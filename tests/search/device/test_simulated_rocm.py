"""A candidate's whole way on a ROCm: Triton's HIP driver, launcher, check, timing; the machine is tests/support's."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from simulated_rocm.machine import MachineSpec, environment

from kernels.device import GFX950
from kernels.problem import GemmShape
from search.device.gpu import fault_line
from search.device.measure import baseline
from search.evaluators.execution import execute_candidate
from search.gfx950.code.artifacts import ArtifactCache
from search.gfx950.machine import COLD, Machine
from search.gfx950.model.executed import predict_works

SHAPE = GemmShape(16, 256, 512)
ROOT = Path(__file__).resolve().parents[3]
MEASURE = """
from dataclasses import replace
from kernels.device import GFX950
from kernels.problem import GemmShape
from search.device.measure import MeasureTask, baseline, measure, this_gpu
from search.device.timing import COLD
task = MeasureTask(baseline(GemmShape({shape.M}, {shape.N}, {shape.K}), GFX950), replace(COLD, rotation=0.004))
done = measure(task, this_gpu())
origin = [done.facts[name] for name in ("protocol", "rocm_or_cuda", "device_name")]
print(done.outcome, *origin, done.objective_us, sep="|")
"""
CONFIRM = """
from dataclasses import replace
from kernels.families import FAMILIES
from kernels.problem import GemmShape
from search.device.measure import FinalTask, MeasureTask, this_gpu, work
from search.device.timing import COLD
from search.evaluation import Candidate
knobs = dict(BLOCK_M=16, BLOCK_N=64, BLOCK_K=128, split_k=2, num_warps=4, num_stages=1)
candidate = Candidate(GemmShape(16, 256, 512), "fused_splitk_ticket", FAMILIES["fused_splitk_ticket"].config(knobs))
protocol = replace(COLD, rotation=0.004)
print(work(MeasureTask(candidate, protocol), this_gpu()).outcome)
print(work(FinalTask((candidate,), protocol, 3, 0, dispatched=True), this_gpu()).rounds)
"""
WHICH = """
import torch, triton
from triton.backends.amd.driver import _get_path_to_hip_runtime_dylib
from kernels.rocm.runtime import mapped_library, rocm_version
triton.runtime.driver.active.get_current_device()
print(_get_path_to_hip_runtime_dylib() == str(mapped_library()), rocm_version())
"""
OTHER_HIP = "int hipDriverGetVersion(int *version) { *version = 50221153; return 0; }"  # as Debian 12's
pytestmark = pytest.mark.skipif(
    None in map(shutil.which, ("cc", "llvm-objdump", "llvm-readelf")), reason="no C compiler or LLVM"
)


def measured(spec: MachineSpec, shape: GemmShape = SHAPE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", MEASURE.format(shape=shape)],
        cwd=ROOT,
        env=environment(spec),
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_candidate_is_loaded_launched_checked_and_timed_by_the_code_that_a_gpu_gets() -> None:
    done = measured(MachineSpec(hip="7.2.26015", runtime=70_226_020))
    assert done.stdout.splitlines()[-1].split("|")[:4] == [
        "ok", "cold-graph-v1[rotation=0.004]", "rocm 7.2.26015, runtime 7.2.26020",
        "AMD Radeon Graphics at 0000:75:00.0",
    ], done.stderr  # fmt: skip


@pytest.mark.parametrize("shape", [GemmShape(16, 256, 512), GemmShape(32, 1024, 2048)], ids=str)
def test_its_clock_gives_what_the_model_predicts_of_the_executed_code(shape: GemmShape, tmp_path: Path) -> None:
    machine = Machine(harness=COLD)
    executed = execute_candidate(baseline(shape, GFX950), GFX950, ArtifactCache(tmp_path / "cache"), tmp_path / "logs")
    predicted_us = predict_works(executed.works(machine), shape, machine).predicted_us
    done = measured(MachineSpec(), shape)
    assert float(done.stdout.split("|")[-1]) == pytest.approx(predicted_us, rel=0.01), done.stderr


def test_a_kernel_with_tickets_runs_through_the_dispatcher_whose_counters_another_thread_makes() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CONFIRM], cwd=ROOT, env=environment(MachineSpec()), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    outcome, rounds = done.stdout.splitlines()[-2:] or ("", "")
    assert outcome == "ok", done.stderr
    assert [len(times) for times in ast.literal_eval(rounds)] == [2, 2, 2]  # as the search launches it, and dispatched


def test_the_stand_in_is_loaded_whatever_hip_the_machine_has(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "hip.c").write_text(OTHER_HIP)
    other = tmp_path / "lib/libamdhip64.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", other, tmp_path / "hip.c"], check=True)
    places = {"TRITON_LIBHIP_PATH": str(other), "LD_LIBRARY_PATH": str(other.parent)}
    places |= dict.fromkeys(("HIP_PATH", "ROCM_PATH"), str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", WHICH], cwd=ROOT, env=environment(MachineSpec()) | places,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1:] == ["True 7.1.52802"], done.stderr


def test_a_rocm_that_corrupts_replays_is_found_out() -> None:
    done = measured(MachineSpec(stale_replays=True))
    assert "ReplayDiffersError: a replay differs from the launches that it was captured from" in done.stderr


def test_a_memory_fault_ends_the_process_with_a_line_that_is_recognised() -> None:
    done = measured(MachineSpec(faults={"fused": "fault"}))
    assert done.returncode == -6
    assert (fault_line(done.stderr) or "").startswith("Memory access fault by GPU node-2")
