"""kernels.families.aiter_triton: AITER's Triton GEMMs, found, built and judged; what of them is not legal, and why."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from aiter_sources import write_kernels
from compiled_programs import check

from kernels.device import GFX950
from kernels.errors import UnavailableError
from kernels.families import FAMILIES
from kernels.families.aiter_triton import AiterPackedConfig, AiterTritonConfig
from kernels.problem import GemmShape
from kernels.rocm.aiter_triton import FUSED, PACKED, REDUCE, find_kernel, lacking_kernel
from kernels.rocm.code_objects import PATH_VARIABLE

PACKED_FAMILY, FUSED_FAMILY = FAMILIES["aiter_triton_a4w4"], FAMILIES["aiter_triton_a16w4"]


@pytest.mark.usefixtures("code_objects")
def test_slices_are_summed_only_where_k_is_split() -> None:
    shape = GemmShape(64, 512, 2048)
    whole, split = (PACKED_FAMILY.program(shape, AiterPackedConfig(BLOCK_M=32, split_k=k)) for k in (1, 4))
    gemm, reduction = "_gemm_afp4wfp4_preshuffle_kernel", "_gemm_splitk_reduce_kernel"
    assert [call.name for call in whole.calls] == ["quantize_kernel", gemm]
    assert [call.name for call in split.calls] == ["quantize_kernel", gemm, reduction]
    assert split.calls[1].grid == (2 * 8 * 4, 1, 1)  # 64 / 32 rows, 512 / 64 columns, 4 slices, on one axis
    assert split.calls[1].constexprs["SPLITK_BLOCK_SIZE"] == 512


@pytest.mark.usefixtures("code_objects")
def test_few_rows_have_plain_scales_and_many_have_shuffled_ones() -> None:
    few = PACKED_FAMILY.program(GemmShape(16, 512, 512), AiterPackedConfig(BLOCK_M=16))
    many = PACKED_FAMILY.program(GemmShape(64, 512, 512), AiterPackedConfig(BLOCK_M=32))
    assert few.calls[0].name == "quantize_plain_kernel"
    assert few.buffer("a_scale").shape == (16, 16)
    assert few.calls[1].args["stride_asm"] == 16  # a scale for each 32 of K
    assert many.buffer("a_scale").shape == (256, 16)  # padded as the shuffled order asks
    assert many.calls[1].args["stride_asm"] == 32 * 16


@pytest.mark.usefixtures("code_objects")
def test_an_argument_of_one_is_compiled_in_as_a_launcher_does() -> None:
    gemm = FUSED_FAMILY.program(GemmShape(1, 512, 512), AiterTritonConfig()).calls[0]
    assert "M" not in gemm.args
    assert gemm.constexprs["M"] == 1
    assert gemm.constexprs["stride_ak"] == 1


@pytest.mark.parametrize(
    "shape, knobs, reason",
    [
        ((16, 512, 576), {}, "whole steps of BLOCK_K=256"),
        ((16, 512, 512), {"split_k": 4}, "in each of split_k=4 slices"),
        ((16, 2112, 512), {"BLOCK_N": 128}, "reads beyond the weight where BLOCK_N=128"),
        ((16, 512, 512), {"BLOCK_N": 16}, "BLOCK_N=16 is not a power of two and a multiple of 32"),
        ((16, 512, 512), {"BLOCK_M": 32}, "plain scales below 32 rows"),
        ((1 << 18, 512, 1 << 13), {"BLOCK_M": 64}, "offsets in 32 bits"),
    ],
)
def test_what_the_kernel_cannot_run_is_refused_with_its_reason(
    shape: tuple[int, int, int], knobs: dict[str, int], reason: str
) -> None:
    refusal = AiterPackedConfig(**knobs).check(GemmShape(*shape), GFX950)  # type: ignore[arg-type]
    assert reason in (refusal or "")


def test_without_aiter_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PATH_VARIABLE, str(tmp_path))
    reason = lacking_kernel(PACKED, REDUCE) or ""
    assert reason.startswith("AITER's Triton kernels are not found; pip install amd-aiter")
    assert "\n" not in reason
    with pytest.raises(UnavailableError, match="pip install amd-aiter"):
        PACKED_FAMILY.program(GemmShape(16, 512, 512), AiterPackedConfig())


def test_an_older_aiter_has_one_of_the_families(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_kernels(tmp_path, "gemm/basic/gemm_afp4wfp4.py", "common/splitk_reduce.py")
    monkeypatch.setenv(PATH_VARIABLE, str(tmp_path))
    assert lacking_kernel(PACKED, REDUCE) is None
    assert "has no kernel _gemm_a16wfp4_preshuffle_kernel; name a newer one" in (lacking_kernel(FUSED) or "")


@pytest.mark.usefixtures("code_objects")
def test_nothing_named_aiter_stays_imported() -> None:
    assert find_kernel(PACKED).arg_names[:3] == ["a_ptr", "b_ptr", "c_ptr"]
    assert [name for name in sys.modules if name.partition(".")[0] == "aiter"] == []


REAL = pytest.mark.skipif(
    not os.environ.get(PATH_VARIABLE) or lacking_kernel(PACKED, REDUCE) is not None,
    reason=f"needs AITER's Triton kernels in {PATH_VARIABLE}",
)


@REAL
@pytest.mark.parametrize(
    "shape, knobs",
    [
        ((1, 512, 512), {"BLOCK_M": 8, "BLOCK_N": 32}),
        ((20, 512, 2048), {"BLOCK_M": 16, "split_k": 4, "num_warps": 2}),
        ((100, 512, 1024), {"BLOCK_M": 64, "GROUP_M": 2, "split_k": 2}),
        ((300, 768, 512), {"BLOCK_M": 64, "GROUP_M": 4, "num_warps": 8}),
    ],
)
def test_aiters_own_packed_kernel_passes_the_gate(shape: tuple[int, int, int], knobs: dict[str, int]) -> None:
    problem = GemmShape(*shape)
    config = AiterPackedConfig(**knobs)  # type: ignore[arg-type]
    assert config.check(problem, GFX950) is None
    assert check(PACKED_FAMILY.program(problem, config), problem).elements > 0


@REAL
@pytest.mark.skipif(lacking_kernel(FUSED) is not None, reason="needs an AITER newer than 0.1.7")
def test_aiters_own_fused_kernel_is_right_without_nan_and_inf() -> None:
    shape = GemmShape(4, 512, 2048)
    program = FUSED_FAMILY.program(shape, AiterTritonConfig(BLOCK_M=4, split_k=2))
    assert program.ordinary_only
    assert check(program, shape).elements > 0
