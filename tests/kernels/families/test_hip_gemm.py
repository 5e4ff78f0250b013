"""kernels/hip/gemm.hip: its gfx950 code, executed on the simulator, against the float64 product."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from installed_hip import needs_compiler
from native_checks import hip_gemm_run_checked, random_operands

from kernels.device import GFX950
from kernels.errors import WrongResultError
from kernels.families.staged_hip import GEMM_POINTERS, StagedHipConfig, gemm_kernel
from kernels.mxfp4.layouts import padded_scale_shape, shuffle_scales, shuffle_weight
from kernels.mxfp4.numerics import quantize
from kernels.mxfp4.reference import compare
from kernels.problem import GemmShape
from kernels.rocm.compiler import HipCompileError, compile_hip
from search.gfx950.simulator import (
    DecodedKernel,
    Histogram,
    InstructionClass,
    SimulatedBuffer,
    SimulatedLaunch,
    load_assembly,
    simulate,
)
from search.gfx950.simulator.instructions import ds

pytestmark = needs_compiler


def tile(BLOCK_M: int, BLOCK_N: int, waves_m: int, waves_n: int, **more: int) -> StagedHipConfig:
    """A configuration with BLOCK_K = 256 unless told otherwise."""
    values = {"BLOCK_K": 256, "num_stages": 2, "matrix_instr_nonkdim": 16, **more}
    return StagedHipConfig(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, waves_m=waves_m, waves_n=waves_n, **values)


SMALL = tile(32, 128, 1, 4)
MIDDLE = tile(64, 128, 2, 2, matrix_instr_nonkdim=32, num_stages=3)
USEFUL = (  # tiles that a sweep should find as good as AITER's
    SMALL, tile(64, 256, 1, 4, num_stages=3), tile(128, 128, 2, 2, matrix_instr_nonkdim=32), tile(256, 256, 2, 4),
)  # fmt: skip


@functools.cache
def assembly(parameters: StagedHipConfig) -> str:
    return compile_hip(gemm_kernel(parameters)).assembly


def built(config: StagedHipConfig) -> DecodedKernel:
    """The kernel; every order of the tiles and all splits share a build."""
    parameters = replace(config, GROUP_M=1, num_xcds=1, split_k=min(config.split_k, 2))
    return load_assembly(assembly(parameters), "mxfp4_gemm")


def check(config: StagedHipConfig, M: int, N: int, K: int) -> Histogram:
    """Execute all of C; raises where anything is wrong."""
    shape = GemmShape(M, N, K)
    assert config.check(shape, GFX950) is None
    return hip_gemm_run_checked(built(config), config, random_operands(shape, seed=M + N + K)).histogram


@pytest.mark.parametrize("K", [64, 192, 256, 320, 512, 768, 1024, 1472], ids="K{}".format)
@pytest.mark.parametrize("config", [SMALL, MIDDLE], ids=["two stages", "three stages, 32 rows"])
def test_every_number_of_steps_and_every_tail_of_k_is_right(config: StagedHipConfig, K: int) -> None:
    check(config, 40, 192, K)


@pytest.mark.parametrize(("M", "N"), [(1, 64), (31, 128), (33, 320), (65, 64), (257, 192)], ids="{}".format)
def test_tails_of_m_and_n_are_right_and_nothing_beside_them_is_written(M: int, N: int) -> None:
    check(MIDDLE, M, N, 576)


@pytest.mark.parametrize("split_k", [2, 3, 7], ids="{} slices".format)
def test_slices_of_k_sum_to_the_product_even_where_some_are_empty(split_k: int) -> None:
    check(replace(SMALL, split_k=split_k), 33, 192, 1088)  # five steps: two of seven slices are empty


@pytest.mark.parametrize(("group_m", "num_xcds", "split_k"), [(1, 8, 1), (2, 1, 1), (3, 8, 2), (16, 4, 1)])
def test_orders_of_the_tiles_cover_all_of_them(group_m: int, num_xcds: int, split_k: int) -> None:
    check(replace(SMALL, GROUP_M=group_m, num_xcds=num_xcds, split_k=split_k), 160, 320, 320)


@pytest.mark.parametrize(
    "config",
    [
        tile(16, 64, 1, 4), tile(128, 16, 4, 1), tile(32, 32, 1, 1, matrix_instr_nonkdim=32, num_stages=3),
        tile(64, 128, 1, 4, num_stages=1), tile(32, 128, 1, 2, num_stages=4), tile(32, 64, 1, 2, BLOCK_K=512),
        tile(96, 128, 1, 4, matrix_instr_nonkdim=32),
        tile(32, 128, 1, 8, BLOCK_K=768),
    ],
    ids=lambda config: "{BLOCK_M}x{BLOCK_N}x{BLOCK_K}-{num_stages}".format(**config.to_dict()),
)  # fmt: skip
def test_waves_of_any_part_and_any_number_of_stages_are_right(config: StagedHipConfig) -> None:
    check(config, 70, 192, 5 * config.BLOCK_K + 64)


@pytest.mark.parametrize("config", USEFUL, ids=lambda config: "{BLOCK_M}x{BLOCK_N}".format(**config.to_dict()))
def test_the_loop_of_a_useful_tile_has_no_valu_and_keeps_loads_in_flight(config: StagedHipConfig) -> None:
    text = assembly(config)
    assert re.search(r"\.vgpr_spill_count:\s+0\b", text) and re.search(r"\.private_segment_fixed_size:\s+0\b", text)
    short, long = (check(config, config.BLOCK_M, config.BLOCK_N, 256 * steps) for steps in (6, 12))
    step = {kind: (long.by_class[kind] - short.by_class[kind]) / short.waves / 6 for kind in InstructionClass}
    assert step[InstructionClass.VALU] == 0
    assert step[InstructionClass.BARRIER] == 1
    rows = config.matrix_instr_nonkdim
    outputs = config.BLOCK_M * config.BLOCK_N / rows**2 / short.waves
    assert step[InstructionClass.MFMA] == outputs * 256 / (2048 / rows)
    assert _drains(short) == _drains(long)


def _drains(histogram: Histogram) -> int:
    """Executed waits that leave no load in flight."""
    return sum(count for text, count in histogram.by_text.items() if re.match(r"s_waitcnt.*vmcnt\(0\)", text))


# Lanes that the LDS may serve together, 16 words of 16 bytes: neighbours, or all rows once at two places of K. No
# manual says which; measured on MI300: lanes 0-3 beside 20-23, 4-7 beside 16-19, 8-11 beside 28-31, 12-15 beside 24-27.
NEIGHBOURS = tuple(tuple(range(first, first + 16)) for first in range(0, 64, 16))
SCATTERED = tuple(
    tuple(half + lane for lane in lanes)
    for half in (0, 32)
    for lanes in ((0, 1, 2, 3, 12, 13, 14, 15, *range(20, 28)), (*range(4, 12), 16, 17, 18, 19, 28, 29, 30, 31))
)


@pytest.mark.parametrize("BLOCK_K", [256, 512, 768], ids="{}".format)
@pytest.mark.parametrize("rows", [16, 32], ids="{} rows".format)
def test_lds_reads_fall_on_all_banks(rows: int, BLOCK_K: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    read = ds.read_lds

    def spy(g: Any, flat: Any, active: Any, size: int) -> Any:
        seen.append(flat.copy())
        return read(g, flat, active, size)

    monkeypatch.setattr(ds, "read_lds", spy)
    check(tile(64, 64, 1, 2, BLOCK_K=BLOCK_K, matrix_instr_nonkdim=rows), 64, 64, BLOCK_K)
    assert seen
    for flat in seen:  # byte of each lane [waves, 64]
        for lanes in (*NEIGHBOURS, *SCATTERED):
            banks = np.sort(flat[:, list(lanes)] // 16 % 16, axis=1)
            assert (banks == np.arange(16)).all()


def test_a_wait_that_is_too_short_is_found() -> None:
    before_barrier = r"s_waitcnt vmcnt\((\d+)\)( lgkmcnt\(0\)\n(?:\s*;.*\n)*\s+s_barrier)"
    text, changed = re.subn(before_barrier, _longer, assembly(SMALL))
    assert changed >= 3
    with pytest.raises(WrongResultError, match="lds_read_before_wait"):
        hip_gemm_run_checked(
            load_assembly(text, "mxfp4_gemm"), SMALL, random_operands(GemmShape(32, 128, 1536), seed=0)
        )


def _longer(found: re.Match[str]) -> str:
    return f"s_waitcnt vmcnt({int(found[1]) + 1}){found[2]}"


def test_a_missing_barrier_is_found() -> None:
    text = re.sub(r"\ts_barrier\n", "\n", assembly(SMALL))
    with pytest.raises(WrongResultError, match="lds_race"):
        hip_gemm_run_checked(
            load_assembly(text, "mxfp4_gemm"), SMALL, random_operands(GemmShape(32, 128, 1536), seed=0)
        )


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"BLOCK_K": 128}, "BLOCK_K is a multiple of 256"),
        ({"waves_m": 3}, "the waves divide the tile"),
        ({"waves_n": 8, "matrix_instr_nonkdim": 32}, "a wave has 16"),
        ({"num_stages": 5}, "NUM_STAGES is 1 to 4"),
        ({"BLOCK_M": 256, "BLOCK_K": 1024, "num_stages": 2}, "exceed the LDS"),
    ],
    ids=lambda value: ", ".join(value) if isinstance(value, dict) else "",
)
def test_illegal_parameters_are_refused_by_the_rules_and_by_the_compiler(wrong: Mapping[str, Any], reason: str) -> None:
    config = replace(tile(64, 128, 1, 4), **wrong)
    assert config.check(GemmShape(64, 128, 1024), GFX950) is not None
    with pytest.raises(HipCompileError, match=reason):
        compile_hip(gemm_kernel(config))


@pytest.mark.slow
def test_offsets_beyond_four_gigabytes_reach_the_right_bytes() -> None:
    """The last tile of a weight of 4.4 GB, stored to the last rows of a C of 6.4 GB, of which only that is touched."""
    M, N, K, stride, columns = 48, 135168, 65536, (1 << 26) - 64, 64
    random = torch.Generator().manual_seed(0)
    a, b = (quantize(torch.randn(rows, K, generator=random).to(torch.bfloat16)) for rows in (M, columns))
    padded = torch.zeros(padded_scale_shape(M, K // 32), dtype=torch.uint8)
    padded[:M] = a.scales
    weight, b_scale = (np.zeros(N * bytes_of_row, np.uint8) for bytes_of_row in (K // 2, K // 32))
    weight[-columns * K // 2 :] = shuffle_weight(b.codes).numpy().reshape(-1)
    b_scale[-columns * K // 32 :] = shuffle_scales(b.scales.repeat(4, 1)).numpy().reshape(-1)[: columns * K // 32]
    out = np.zeros(M * stride, np.uint16)
    config = tile(16, 64, 1, 2)
    kernel = gemm_kernel(config)
    arrays = (a.codes.numpy(), shuffle_scales(padded).numpy(), weight, b_scale, SimulatedBuffer(out))
    integers = {"M": M, "N": N, "K": K, "stride_om": stride, "split_k": 1, "GROUP_M": 1, "num_xcds": 1}
    tiles = (M // 16) * (N // 64)
    launch = SimulatedLaunch(
        dict(zip(GEMM_POINTERS, arrays, strict=True)), (tiles, 1, 1), (kernel.threads, 1, 1),
        pack=lambda at: kernel.pack({name: at[name] for name in GEMM_POINTERS} | integers),
    )  # fmt: skip
    result = simulate(built(config), launch, [(tiles - 1, 0, 0)])
    assert not result.findings
    actual = torch.from_numpy(out.reshape(M, stride)[32:, N - columns : N].copy()).view(torch.bfloat16)
    reference = a.dequantize(torch.float64)[32:] @ b.dequantize(torch.float64).T
    assert compare(actual, reference, ulp=1).ok
