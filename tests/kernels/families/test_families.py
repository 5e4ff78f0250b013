"""Every family against the float64 reference, through Triton's interpreter; what the programs say of themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.device import GFX950, DeviceKey
from kernels.families import FAMILIES
from kernels.families.fused import TileConfig
from kernels.families.staged_triton import StagedConfig
from kernels.problem import GemmShape

ROOT = Path(__file__).resolve().parents[3]
INTERPRETED = ROOT / "tests" / "support" / "interpreted.py"
Case = tuple[int, int, int, str, dict[str, int | str], int]

# (M, N, K), knobs, row padding of A: M, N and K tails, one and many steps, tiles far beyond the shape.
SMALL_TILES: list[tuple[tuple[int, int, int], dict[str, int | str], int]] = [
    ((1, 64, 64), {"BLOCK_M": 4, "BLOCK_N": 16, "BLOCK_K": 64}, 0),
    ((3, 64, 192), {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 128, "GROUP_M": 2}, 8),
    ((17, 64, 448), {"BLOCK_M": 8, "BLOCK_N": 64, "BLOCK_K": 256, "GROUP_M": 4, "num_xcds": 8}, 0),
    ((3, 64, 2304), {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 256, "cache_modifier": ".cg"}, 64),
]
LARGE_TILES: list[tuple[tuple[int, int, int], dict[str, int | str], int]] = [
    ((40, 2112, 576), {"BLOCK_M": 32, "BLOCK_N": 256, "BLOCK_K": 512, "GROUP_M": 2, "num_xcds": 8}, 0),
    ((17, 2880, 192), {"BLOCK_M": 32, "BLOCK_N": 256, "BLOCK_K": 1024}, 16),
    ((1, 2112, 448), {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 128, "num_xcds": 8}, 0),
]
# Steps of 128 that take two runs of 64 columns (K a multiple of 256), for rows of one, two and four groups of 16.
PAIRED_STEPS: list[tuple[tuple[int, int, int], dict[str, int | str], int]] = [
    ((3, 64, 256), {"BLOCK_M": 4, "BLOCK_N": 16, "BLOCK_K": 128}, 0),
    ((3, 64, 512), {"BLOCK_M": 4, "BLOCK_N": 32, "BLOCK_K": 128}, 8),
    ((5, 64, 768), {"BLOCK_M": 4, "BLOCK_N": 64, "BLOCK_K": 128, "cache_modifier": ".cg"}, 0),
]
TRITON = sorted(name for name, family in FAMILIES.items() if family.is_triton)
BF16_STEPS = {  # BLOCK_K of the cases in which A is rounded instead of packed
    "fused": (64, 128, 256), "fused_splitk_workspace": (64, 128, 256), "fused_splitk_ticket": (64, 128, 256),
    "staged_triton": (128, 256), "staged_splitk_ticket": (128, 256),
}  # fmt: skip
SPLITS = (3, 16)  # 16 is beyond K / BLOCK_K everywhere: programs without a share of K


def cases(family: str) -> list[Case]:
    """Both quantisers at every shape, split families at both splits; A as bf16 with small tiles in some."""
    found: list[Case] = []
    for shape, knobs, padding in SMALL_TILES + LARGE_TILES + PAIRED_STEPS * (family in BF16_STEPS):
        ways = [] if (shape, knobs, padding) in PAIRED_STEPS else [("hardware", "e2m1"), ("software", "e2m1")]
        if knobs["BLOCK_K"] in BF16_STEPS.get(family, ()) and shape[1] == 64:
            ways.append(("software", "bf16"))
        for quantizer, a_operand in ways:
            chosen = {**knobs, "quantizer": quantizer, "a_operand": a_operand}
            splits = SPLITS if family != "fused" and shape[1] == 64 else SPLITS[:1]
            for split_k in splits:
                extra = {} if family == "fused" else {"split_k": split_k}
                found.append((*shape, family, {**chosen, **extra}, padding))
    return found


@pytest.fixture(scope="module", params=TRITON)
def interpreted(request: pytest.FixtureRequest) -> list[tuple[Case, dict[str, int]]]:
    """Each case of one family with what came out; the interpreter must be chosen before Triton is imported."""
    wanted = cases(request.param)
    done = subprocess.run(
        [sys.executable, str(INTERPRETED), json.dumps(wanted)],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return list(zip(wanted, map(json.loads, done.stdout.splitlines()), strict=True))


def test_matches_the_reference_with_poisoned_pads_outputs_and_workspaces(
    interpreted: list[tuple[Case, dict[str, int]]],
) -> None:
    wrong = [(case, result) for case, result in interpreted if result["mismatches"]]
    assert not wrong


@pytest.mark.usefixtures("code_objects")
@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_every_pointer_argument_names_a_buffer_and_every_argument_is_given(name: str) -> None:
    family = FAMILIES[name]
    program = family.program(GemmShape(17, 2112, 576), family.config_type())
    buffers = {buffer.name for buffer in program.buffers}
    for call in program.calls:
        assert sorted([*call.args, *call.constexprs]) == sorted(call.kernel.arg_names)
        assert {value for value in call.args.values() if isinstance(value, str)} <= buffers


@pytest.mark.usefixtures("code_objects")
@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_every_workspace_is_written_before_it_is_read(name: str) -> None:
    # The first kernel that names a workspace is the one that fills it: its pointer is the kernel's last.
    family = FAMILIES[name]
    program = family.program(GemmShape(17, 2112, 576), family.config_type())
    for buffer in program.workspaces:
        first = next(call for call in program.calls if buffer.name in call.args.values())
        inputs = [value for value in first.args.values() if value in ("a", "b", "b_scale")]
        assert first.name == "zero_kernel" or inputs


def test_indices_become_64_bit_when_a_tensor_outgrows_32_bits() -> None:
    fused = FAMILIES["fused"]
    small = fused.program(GemmShape(8192, 8192, 8192), TileConfig()).calls[0]
    large_c = fused.program(GemmShape(1 << 17, 1 << 15, 64), TileConfig()).calls[0]
    large_b = fused.program(GemmShape(16, 1 << 17, 1 << 15), TileConfig()).calls[0]
    assert [c.constexprs["WIDE_OFFSETS"] for c in (small, large_c, large_b)] == [False, True, True]


@pytest.mark.parametrize("name", ["staged_triton", "staged_splitk_ticket"])
def test_values_of_a_whose_tiles_are_padded_along_k_are_counted_with_their_pads(name: str) -> None:
    """M x K is below 2**31, what the GEMM reads is not: 3 million rows of 1024."""
    knobs = {"quantizer": "software", "a_operand": "bf16", "BLOCK_K": 1024, "split_k": 1}
    program = FAMILIES[name].program(GemmShape(3_000_000, 64, 64), FAMILIES[name].config(knobs))
    assert program.buffer("a_values").bytes // 2 >= 1 << 31
    assert [call.constexprs["WIDE_OFFSETS"] for call in program.calls] == [True, True]


def test_a_staged_gemm_without_a_split_needs_no_slices_and_no_reduction() -> None:
    staged = FAMILIES["staged_triton"]
    shape = GemmShape(64, 7168, 2048)
    one, four = (staged.program(shape, StagedConfig(split_k=s)) for s in (1, 4))
    assert [c.name for c in one.calls] == ["quantize_kernel", "staged_gemm_kernel"]
    assert [c.name for c in four.calls] == ["quantize_kernel", "staged_gemm_kernel", "reduce_kernel"]
    assert four.buffer("slices").shape == (4, 64, 7168)
    with pytest.raises(KeyError):
        one.buffer("slices")


@pytest.mark.parametrize(
    "knobs, reason",
    [
        ({"BLOCK_M": 24}, "BLOCK_M=24 is not a power of two"),
        ({"BLOCK_N": 8}, "BLOCK_N=8 is not a power of two and a multiple of 16"),
        ({"BLOCK_K": 32}, "BLOCK_K=32 is not a power of two and a multiple of 64"),
        ({"num_warps": 3}, "num_warps=3"),
        ({"num_stages": 0}, "num_stages=0 is less than 1"),
        ({"BLOCK_M": 256, "BLOCK_N": 256, "num_warps": 1}, "exceed the registers of 1 waves"),
        ({"matrix_instr_nonkdim": 4}, "is none of 0, 16, 32"),
    ],
)
def test_a_configuration_that_cannot_run_is_refused_with_its_reason(knobs: dict[str, int], reason: str) -> None:
    refusal = TileConfig(**knobs).check(GemmShape(16, 2112, 7168), GFX950)  # type: ignore[arg-type]
    assert refusal is not None
    assert reason in refusal


def test_the_hardware_quantiser_is_refused_where_there_is_no_such_instruction() -> None:
    shape = GemmShape(16, 2112, 7168)
    h200 = DeviceKey("sm_90", 132)
    assert "FP4 conversion instruction" in (TileConfig(quantizer="hardware").check(shape, h200) or "")
    assert TileConfig(quantizer="software").check(shape, h200) is None


@pytest.mark.parametrize("name", TRITON)
def test_bf16_operands_are_for_devices_without_an_fp4_unit(name: str) -> None:
    shape = GemmShape(16, 2112, 7168)
    config = FAMILIES[name].config({"quantizer": "software", "a_operand": "bf16"})
    assert "FP4 matrix unit" in (config.check(shape, GFX950) or "")
    assert config.check(shape, DeviceKey("sm_90", 132)) is None


def test_rounded_values_are_stored_128_of_k_at_a_time() -> None:
    config = StagedConfig(quantizer="software", a_operand="bf16", BLOCK_K=64)
    refused = config.check(GemmShape(16, 2112, 7168), DeviceKey("sm_90", 132))
    assert "BLOCK_K=64 and QUANT_BLOCK_K=256 must be multiples of 128" in (refused or "")


def test_families_whose_order_of_sums_varies_say_so() -> None:
    found = {name: family.is_deterministic(family.config_type()) for name, family in FAMILIES.items()}
    assert found == {
        "fused": True, "fused_splitk_atomic": False, "fused_splitk_workspace": True, "fused_splitk_ticket": True,
        "staged_triton": True, "staged_splitk_ticket": True, "staged_hip": True, "staged_ck": True,
        "aiter_triton_a4w4": True, "aiter_triton_a16w4": True, "aiter": False,
    }  # fmt: skip
    staged_ck = FAMILIES["staged_ck"]
    assert not staged_ck.is_deterministic(staged_ck.config({"BLOCK_M": 256, "BLOCK_N": 256, "log2_k_split": 1}))


@pytest.mark.usefixtures("code_objects")
@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_a_strided_a_reaches_the_kernel_that_reads_it(name: str) -> None:
    family = FAMILIES[name]
    program = family.program(GemmShape(17, 2112, 512), family.config_type(), 640)
    assert [call.args["stride_am"] for call in program.calls if "a" in call.args.values()] == [640]
