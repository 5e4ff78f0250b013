"""search.gfx950.code.assembly on hand-written assembly, and on a pipelined kernel from the real compiler."""

from __future__ import annotations

import time

import pytest
import triton
import triton.language as tl

from search.gfx950.code.assembly import Resources, analyze
from search.gfx950.code.instruction_mix import InstructionMix
from search.gfx950.code.triton import Specialization

METADATA = """\
	.amdgpu_metadata
---
amdhsa.kernels:
  - .agpr_count:     4
    .args:
      - .offset:         0
        .size:           8
        .value_kind:     global_buffer
    .group_segment_fixed_size: 1280
    .kernarg_segment_size: 320
    .max_flat_workgroup_size: 256
    .name:           k
    .private_segment_fixed_size: 24
    .sgpr_count:     53
    .sgpr_spill_count: 2
    .vgpr_count:     132
    .vgpr_spill_count: 6
...
	.end_amdgpu_metadata
"""
MFMA = "\tv_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:7], v[8:11], v[0:3], v12, v13 op_sel_hi:[0,0,0] cbsz:4 blgp:4\n"
PIPELINED = f"""\
	.text
	.globl	k                               ; -- Begin function k
	.type	k,@function
k:                                      ; @k
; %bb.0:
	s_load_dwordx2 s[0:1], s[4:5], 0x0
	v_mov_b32_e32 v0, 0
	buffer_load_dwordx4 v[4:7], v20, s[0:3], 0 offen
.LBB0_1:                                ; a loop without MFMA
	v_add_u32_e32 v1, 1, v1
	s_cbranch_scc1 .LBB0_1
.LBB0_2:                                ; =>This Loop Header: Depth=1
	s_nop 0
.LBB0_3:                                ; =>This Inner Loop Header: Depth=2
	buffer_load_dwordx4 v[4:7], v20, s[0:3], 0 offen
	;;#ASMSTART
	v_cvt_scalef32_pk_fp4_f32 v8, v1, v2, v3
	;;#ASMEND
{MFMA}{MFMA}	s_cbranch_scc0 .LBB0_3
; %bb.4:
	s_cbranch_scc1 .LBB0_2
	s_cbranch_vccnz .LBB0_5
{MFMA}{MFMA}.LBB0_5:
	buffer_store_dwordx4 v[0:3], v4, s[20:23], 0 offen
	s_endpgm
.Lfunc_end0:
	.size	k, .Lfunc_end0-k
	.section	.rodata,"a",@progbits
	.amdhsa_kernel k
		.amdhsa_group_segment_fixed_size 1280
	.end_amdhsa_kernel
{METADATA}"""


def test_reads_resources_from_the_metadata() -> None:
    assert analyze(PIPELINED).resources == Resources(
        vgprs=132,
        agprs=4,
        sgprs=53,
        vgpr_spills=6,
        sgpr_spills=2,
        scratch_bytes=24,
        lds_bytes=1280,
        kernarg_bytes=320,
    )


def test_splits_the_code_at_the_innermost_loop_with_mfma() -> None:
    analysis = analyze(PIPELINED)
    prologue, loop, epilogue = analysis.prologue, analysis.loop, analysis.epilogue
    assert (prologue.valu, prologue.global_load, prologue.scalar, prologue.mfma) == (2, 1, 3, 0)
    assert (loop.mfma_scaled, loop.cvt_scalef32, loop.global_load, loop.scalar) == (2, 1, 1, 1)
    assert (epilogue.mfma_scaled, epilogue.global_store, epilogue.scalar) == (2, 1, 3)
    assert analysis.whole == prologue + loop + epilogue


def test_peeled_steps_shorten_the_loop() -> None:
    analysis = analyze(PIPELINED)
    # 7 steps: 6 trips of the loop, one step in the epilogue; 2 MFMA each.
    mix = analysis.executed(k_steps=7)
    assert (mix.mfma_scaled, mix.global_load, mix.global_store) == (14, 7, 1)
    # The same loop unrolled twice: the epilogue does the work of two steps, the loop 2.5 trips of two.
    assert analysis.executed(k_steps=7, steps_per_trip=2).mfma_scaled == 7


def test_only_the_mfma_of_a_peeled_step_are_skipped_where_there_is_no_such_step() -> None:
    analysis = analyze(PIPELINED)
    once = analysis.prologue + analysis.epilogue
    assert analysis.executed(k_steps=1) == once
    none = analysis.executed(k_steps=0)
    assert (none.mfma_scaled, none.mfma_16x16x128, none.mfma_clks) == (0, 0, 0)
    assert (none.valu, none.global_load, none.global_store) == (once.valu, once.global_load, once.global_store)


def test_code_without_a_matrix_loop_counts_once() -> None:
    straight = f"k:\n\tv_mov_b32_e32 v0, 0\n{MFMA}\ts_endpgm\n{METADATA}"
    analysis = analyze(straight)
    assert analysis.loop == InstructionMix()
    assert analysis.executed(k_steps=9) == analysis.whole
    assert analysis.whole.mfma == 1


def test_the_larger_of_two_matrix_loops_is_the_hot_one() -> None:
    loops = f".LBB0_1:\n{MFMA}\ts_cbranch_scc1 .LBB0_1\n.LBB0_2:\n{MFMA}{MFMA}\ts_cbranch_scc1 .LBB0_2\n"
    analysis = analyze(f"k:\n{loops}\ts_endpgm\n{METADATA}")
    assert (analysis.prologue.mfma, analysis.loop.mfma, analysis.epilogue.mfma) == (1, 2, 0)


def test_needs_the_metadata_of_a_kernel() -> None:
    with pytest.raises(ValueError, match=r"no \.amdgpu_metadata"):
        analyze("k:\n\ts_endpgm\n")
    with pytest.raises(ValueError, match="lacks vgpr_count"):
        analyze(PIPELINED.replace(".vgpr_count", ".vgpr_colour"))


def test_five_thousand_lines_take_milliseconds() -> None:
    body = "".join(f"\tv_add_u32_e32 v{i % 250}, v1, v2\n\tds_read_b128 v[0:3], v4 offset:{i}\n" for i in range(2500))
    text = f"k:\n.LBB0_1:\n{body}{MFMA}\ts_cbranch_scc1 .LBB0_1\n\ts_endpgm\n{METADATA}"
    analyze(text)
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        analyze(text)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.05  # about 7 ms on an idle core; the margin is for shared machines


@triton.jit
def scaled_loop(a_ptr, b_ptr, scale_ptr, c_ptr, K, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    """C [BLOCK, BLOCK] of fp32 = A [BLOCK, K] @ B [K, BLOCK] of MXFP4, one scale row for all."""
    rows = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        columns = k // 2 + tl.arange(0, BLOCK_K // 2)
        groups = tl.broadcast_to((k // 32 + tl.arange(0, BLOCK_K // 32))[None, :], (BLOCK, BLOCK_K // 32))
        a = tl.load(a_ptr + rows[:, None] * (K // 2) + columns[None, :])
        b = tl.load(b_ptr + columns[:, None] + rows[None, :] * (K // 2))
        scale = tl.load(scale_ptr + groups)
        acc = tl.dot_scaled(a, scale, "e2m1", b, scale, "e2m1", acc)
    tl.store(c_ptr + rows[:, None] * BLOCK + rows[None, :], acc)


@pytest.mark.parametrize("num_stages", [1, 2, 3])
def test_counts_the_mfma_of_a_compiled_loop(num_stages: int) -> None:
    types = {"a_ptr": "*u8", "b_ptr": "*u8", "scale_ptr": "*u8", "c_ptr": "*fp32", "K": "i32"}
    wanted = Specialization(
        scaled_loop,
        types,
        {"BLOCK": 64, "BLOCK_K": 256},
        {"num_warps": 4, "num_stages": num_stages, "matrix_instr_nonkdim": 16},
        divisible_by_16=("K",),
    )
    analysis = analyze(wanted.compile().assembly)
    # A 64 x 64 x 256 step is 4 x 4 x 2 instructions of 16 x 16 x 128, shared by 4 waves.
    assert analysis.loop.mfma_16x16x128 == 8
    assert analysis.executed(k_steps=10).mfma_scaled == 80
    assert analysis.resources.vgpr_spills == 0
