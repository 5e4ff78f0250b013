"""kernels.families.staged_hip: launches of the families whose GEMM Triton does not make."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernels.errors import UnavailableError
from kernels.families import FAMILIES
from kernels.families.staged_ck import StagedCkConfig
from kernels.families.staged_hip import StagedHipConfig
from kernels.launches.native import HipKernel, PrebuiltKernel
from kernels.launches.program import Program
from kernels.problem import GemmShape
from kernels.rocm.code_objects import PATH_VARIABLE

SHAPE = GemmShape(300, 2048, 1024)


def staged_ck(**knobs: int | str) -> Program:
    family = FAMILIES["staged_ck"]
    return family.program(SHAPE, family.config(knobs))


def test_a_hip_gemm_has_a_workgroup_for_each_tile_and_slice() -> None:
    config = StagedHipConfig(BLOCK_M=64, BLOCK_N=256, waves_m=2, waves_n=4, split_k=3, GROUP_M=2, num_xcds=8)
    program = FAMILIES["staged_hip"].program(SHAPE, config, 1088)
    quantize, gemm, reduce = program.calls
    assert (gemm.grid, gemm.kernel.threads) == ((5 * 8, 3, 1), 512)
    assert gemm.args["out_ptr"] == "slices"
    assert (gemm.args["split_k"], gemm.args["GROUP_M"], gemm.args["num_xcds"]) == (3, 2, 8)
    assert program.buffer("slices").shape == (3, 300, 2048)
    assert quantize.args["stride_am"] == 1088
    assert reduce.constexprs["SPLIT_K"] == 3


def test_every_shape_shares_the_build_of_a_hip_gemm() -> None:
    kernels = []
    for shape in (SHAPE, GemmShape(1, 64, 64)):
        kernel = FAMILIES["staged_hip"].program(shape, StagedHipConfig()).calls[1].kernel
        assert isinstance(kernel, HipKernel)
        kernels.append((kernel.source, dict(kernel.defines)))
    assert kernels[0] == kernels[1]
    assert kernels[0][1]["STORE"] == 0


@pytest.mark.usefixtures("code_objects")
def test_a_code_object_reads_what_the_chosen_kernel_quantised() -> None:
    by_triton, by_hip = staged_ck(), staged_ck(quantize_kernel="hip")
    assert [call.name for call in by_triton.calls] == ["quantize_kernel", "f4gemm_32x128"]
    assert by_triton.calls[0].constexprs["QUANTIZER"] == "hardware"
    assert [call.name for call in by_hip.calls] == ["mxfp4_quantize", "f4gemm_32x128"]
    for program in (by_triton, by_hip):
        gemm = program.calls[1]
        assert isinstance(gemm.kernel, PrebuiltKernel)
        assert gemm.grid == (16, 10, 1)  # tile columns first
        assert {gemm.args["a"], gemm.args["a_scale"]} <= set(program.calls[0].args.values())
        assert program.bf16_slice_k is None


@pytest.mark.usefixtures("code_objects")
def test_slices_are_added_to_a_cleared_output() -> None:
    program = staged_ck(BLOCK_M=256, BLOCK_N=256, log2_k_split=1)
    _, zero, gemm = program.calls
    assert (zero.name, zero.args) == ("zero_kernel", {"x_ptr": "out", "elements": 300 * 2048})
    assert (gemm.grid, program.bf16_slice_k) == ((8, 2, 2), 512)


def test_without_aiter_the_program_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PATH_VARIABLE, str(tmp_path))
    with pytest.raises(UnavailableError, match="set MXFP4_AITER to an AITER install"):
        staged_ck()


def test_an_aiter_without_the_tile_names_those_that_it_has(code_objects: Path) -> None:
    index = next(code_objects.glob("*.csv"))
    lines = index.read_text().splitlines()
    index.write_text("\n".join(line for line in lines if not line.startswith("32,128,")) + "\n")
    with pytest.raises(UnavailableError, match="has no kernel of tile 32x128: choose one of 32x256"):
        staged_ck(**{name: value for name, value in StagedCkConfig().to_dict().items() if "BLOCK" in name})
