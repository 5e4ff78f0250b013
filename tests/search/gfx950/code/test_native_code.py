"""search.gfx950.code.rocm: HIP builds and AITER's code objects, as what the simulator and the timing model take."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from kernels.device import GFX950
from kernels.errors import CompileError, InputError, UnavailableError
from kernels.families.staged_hip import StagedHipConfig, gemm_kernel
from kernels.launches.code_object import prebuilt_kernel
from kernels.problem import GemmShape
from kernels.rocm.code_objects import CodeObject, find_catalogue
from kernels.rocm.compiler import COMPILER_VARIABLE, HipCompiler
from kernels.rocm.toolchain import ToolNotFoundError
from search.gfx950.code import rocm as native_code
from search.gfx950.code.rocm import build_hip, loaded_code_object, read_code_object
from search.space.available import absence

KERNEL = gemm_kernel(StagedHipConfig(BLOCK_M=16, BLOCK_N=64))


def test_a_hip_build_is_kept_on_disk(tmp_path: Path) -> None:
    reason = absence("staged_hip", GFX950, offline=True)
    if reason is not None:
        pytest.skip(reason)
    first, cached = build_hip(KERNEL, tmp_path)
    assert not cached
    assert (first.name, first.num_warps, first.lds_bytes) == ("mxfp4_gemm", 4, 0)
    again, cached = build_hip(KERNEL, tmp_path)
    assert cached
    assert again == first


def test_a_rejected_source_is_a_compile_error_of_one_line(tmp_path: Path) -> None:
    reason = absence("staged_hip", GFX950, offline=True)
    if reason is not None:
        pytest.skip(reason)
    with pytest.raises(CompileError) as caught:
        build_hip(gemm_kernel(StagedHipConfig(BLOCK_K=128)), tmp_path)
    assert "BLOCK_K is a multiple of 256" in str(caught.value) and "\n" not in str(caught.value)


def test_without_a_compiler_the_cure_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMPILER_VARIABLE, str(tmp_path))
    with pytest.raises(UnavailableError, match="name a hipcc, or a clang"):
        build_hip(KERNEL, tmp_path)


def test_a_cache_that_cannot_be_written_is_no_fault_of_the_candidate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = HipCompiler(tmp_path / "clang", tmp_path / "clang", "clang version 20.0.0")
    monkeypatch.setattr(native_code, "find_compiler", lambda: compiler)
    (tmp_path / "hip").write_text("a file")
    with monkeypatch.context() as patch, pytest.raises(InputError, match="set XDG_CACHE_HOME"):
        patch.setattr(tempfile, "tempdir", str(tmp_path / "hip"))
        build_hip(KERNEL, tmp_path)
    with pytest.raises(InputError, match="clang cannot be run"):
        build_hip(KERNEL, tmp_path / "cache")


def test_a_code_object_says_what_it_occupies_and_holds() -> None:
    reason = absence("staged_ck", GFX950, offline=True)
    if reason is not None:
        pytest.skip(reason)
    kernel = prebuilt_kernel(find_catalogue().find(32, 128), GemmShape(32, 128, 256))
    read, analysis = read_code_object(kernel)
    assert (read.name, read.num_warps) == (kernel.name, 4)
    # llvm-readelf --notes: the whole LDS and all registers, so that one workgroup fits on a compute unit.
    assert (analysis.resources.lds_bytes, analysis.resources.vgprs, analysis.resources.vgpr_spills) == (163840, 512, 0)
    assert analysis.mix.mfma_scaled > 0
    assert analysis.mix.mfma_other == 0
    assert loaded_code_object(kernel).name == kernel.name


def test_without_a_disassembler_the_cure_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def absent(path: Path, symbol: str) -> None:
        raise ToolNotFoundError("llvm-objdump not found: install ROCm or LLVM >= 20")

    monkeypatch.setattr(native_code, "load_code_object", absent)
    kernel = prebuilt_kernel(CodeObject(32, 128, 256, False, True, "k", tmp_path / "k.co"), GemmShape(32, 128, 256))
    with pytest.raises(UnavailableError, match="install ROCm or LLVM"):
        read_code_object(kernel)
