"""ELF code objects: built by clang, disassembled, executed like the assembly text of the same source."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from kernels.rocm.toolchain import ToolNotFoundError, find_tool
from search.gfx950.simulator import (
    FindingKind,
    SimulatedBuffer,
    SimulatedLaunch,
    SimulationError,
    load_assembly,
    load_code_object,
    simulate,
)
from search.gfx950.simulator.decode.elf import read_elf

CLANG = next((found for version in range(30, 19, -1) if (found := shutil.which(f"clang-{version}"))), None)
OBJDUMP = next((found for version in range(30, 19, -1) if (found := shutil.which(f"llvm-objdump-{version}"))), None)
SOURCE = """
#define KERNEL extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(256, 256)))
#ifdef FENCED
#define BARRIER __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"); __builtin_amdgcn_s_barrier(); \\
                __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup")
#else
#define BARRIER __builtin_amdgcn_s_barrier()
#endif
KERNEL void rotate(const unsigned* x, unsigned* y, int shift) {
  __attribute__((shared)) static unsigned tile[256];
  int t = __builtin_amdgcn_workitem_id_x();
  tile[t] = x[t];
  BARRIER;
  y[t] = tile[(t + shift) & 255];
}
KERNEL void quantise(const float* x, unsigned* y, float scale, float divisor) {
  int t = __builtin_amdgcn_workitem_id_x();
  unsigned r = 0;
  r = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(r, x[8 * t], x[8 * t + 1], scale, 0);
  r = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(r, x[8 * t + 2], x[8 * t + 3], scale, 1);
  r = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(r, x[8 * t + 4], x[8 * t + 5] / divisor, scale, 2);
  r = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(r, x[8 * t + 6], x[8 * t + 7], scale, 3);
  y[t] = r;
}
"""
needs_clang = pytest.mark.skipif(
    CLANG is None or OBJDUMP is None, reason="no clang and llvm-objdump of LLVM 20 or newer"
)


def build(folder: Path, *flags: str) -> tuple[str, Path]:
    """(assembly text, code object) of ``SOURCE``."""
    assert CLANG is not None
    source = folder / "subject.hip"
    source.write_text(SOURCE)
    common = [
        CLANG,
        "-x",
        "hip",
        "--offload-arch=gfx950",
        "--cuda-device-only",
        "-nogpulib",
        "-nogpuinc",
        "-O3",
        *flags,
    ]
    text, binary = folder / "subject.s", folder / "subject.co"
    subprocess.run([*common, "-S", str(source), "-o", str(text)], check=True, capture_output=True)
    subprocess.run([*common, "--no-gpu-bundle-output", str(source), "-o", str(binary)], check=True, capture_output=True)
    return text.read_text(), binary


@needs_clang
def test_text_and_code_object_compute_the_same(tmp_path: Path) -> None:
    text, binary = build(tmp_path, "-DFENCED")
    x = np.arange(256, dtype=np.uint32) * 7
    results = []
    for subject in (load_assembly(text, "rotate"), load_code_object(binary, "rotate")):
        y = np.zeros_like(x)
        result = simulate(
            subject, SimulatedLaunch({"x": x, "y": SimulatedBuffer(y, False), "shift": 65}, (1, 1, 1), (256, 1, 1))
        )
        assert result.clean, [str(finding) for finding in result.findings]
        assert np.array_equal(y, np.roll(x, -65))
        results.append(result.histogram.by_class)
    assert results[0] == results[1]


@needs_clang
def test_a_barrier_without_a_fence_is_a_race(tmp_path: Path) -> None:
    _, binary = build(tmp_path)
    x = np.arange(256, dtype=np.uint32)
    launch = SimulatedLaunch({"x": x, "y": np.zeros_like(x), "shift": 65}, (1, 1, 1), (256, 1, 1))
    kinds = {finding.kind for finding in simulate(load_code_object(binary, "rotate"), launch).findings}
    assert kinds == {FindingKind.LDS_RACE}


@needs_clang
def test_quantisation_with_a_division(tmp_path: Path) -> None:
    _, binary = build(tmp_path)
    x = np.random.default_rng(3).standard_normal((256, 8)).astype(np.float32)
    y = np.zeros(256, np.uint32)
    launch = SimulatedLaunch(
        {"x": x, "y": SimulatedBuffer(y, False), "scale": 0.25, "divisor": 3.0}, (1, 1, 1), (256, 1, 1)
    )
    assert simulate(load_code_object(binary, "quantise"), launch).clean
    scaled = x.copy()
    scaled[:, 5] /= np.float32(3)
    middles = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])  # no random value is a tie
    codes = np.searchsorted(middles, np.abs(scaled) * 4) | np.signbit(scaled) * 8
    assert np.array_equal(y, (codes << (4 * np.arange(8))).sum(axis=1))


@needs_clang
def test_unknown_symbol_names_those_that_exist(tmp_path: Path) -> None:
    _, binary = build(tmp_path)
    with pytest.raises(SimulationError, match=r"no kernel other.*rotate"):
        load_code_object(binary, "other")


def test_a_file_that_is_no_elf_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.co"
    path.write_bytes(b"not an elf file")
    with pytest.raises(SimulationError, match="no 64-bit little-endian ELF"):
        load_code_object(path)


@needs_clang
def test_a_file_that_is_cut_short_or_damaged_is_an_error_that_names_it(tmp_path: Path) -> None:
    _, binary = build(tmp_path)
    whole, path = binary.read_bytes(), tmp_path / "torn.co"
    for size in (0, 5, 20, 40, 63, 64, len(whole) // 2, len(whole) - 64):
        path.write_bytes(whole[:size])
        with pytest.raises(SimulationError, match=r"torn\.co (is cut short or damaged|is no 64-bit)"):
            read_elf(path)
    random = np.random.default_rng(0)
    for _ in range(300):
        torn = np.frombuffer(whole, np.uint8).copy()
        places = random.choice([*range(6, 64), *range(len(whole) - 1500, len(whole))], 4)
        torn[places] = random.integers(0, 256, 4)
        path.write_bytes(torn.tobytes())
        with suppress(SimulationError):
            read_elf(path)
    with pytest.raises(SimulationError, match=r"gone\.co cannot be read: No such file"):
        read_elf(tmp_path / "gone.co")


def test_absent_tools_are_one_clear_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolNotFoundError, match="llvm-imaginary not found: install ROCm or LLVM >= 20"):
        find_tool("llvm-imaginary")


def test_tools_that_are_too_old_are_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, version in (("llvm-imaginary", 14), ("llvm-imaginary-22", 22)):
        tool = tmp_path / name
        tool.write_text(f"#!/bin/sh\necho 'LLVM version {version}.0.6'\n")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_tool("llvm-imaginary").name == "llvm-imaginary-22"
    (tmp_path / "llvm-imaginary-22").unlink()
    with pytest.raises(ToolNotFoundError):
        find_tool("llvm-imaginary")
