"""static_counts: the loop of hand-written assembly, and of a pipelined kernel from the real compiler."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
import triton
import triton.language as tl

from search.gfx950.code.assembly import Resources, analyze
from search.gfx950.code.instruction_mix import InstructionMix
from search.gfx950.code.triton import Specialization
from search.gfx950.machine import MI355X
from search.gfx950.model.formula import CallWork
from search.gfx950.model.static_counts import StaticCounts, static_counts, with_code

MFMA = "\tv_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:7], v[8:11], v[0:3], v12, v13 op_sel_hi:[0,0,0] cbsz:4 blgp:4\n"
PIPELINED = f"""\
k:                                      ; @k
	v_mov_b32_e32 v0, 0
	buffer_load_dwordx4 v[4:7], v20, s[0:3], 0 offen
.LBB0_1:                                ; a loop without MFMA
	v_add_u32_e32 v1, 1, v1
	s_cbranch_scc1 .LBB0_1
.LBB0_2:                                ; =>This Loop Header: Depth=1
	s_nop 0
.LBB0_3:                                ; =>This Inner Loop Header: Depth=2
	buffer_load_dwordx4 v[4:7], v20, s[0:3], 0 offen
{MFMA}{MFMA}	s_cbranch_scc0 .LBB0_3
; %bb.4:
	s_cbranch_scc1 .LBB0_2
	s_cbranch_vccnz .LBB0_5
{MFMA}{MFMA}.LBB0_5:
	buffer_store_dwordx4 v[0:3], v4, s[20:23], 0 offen
	s_endpgm
	.amdgpu_metadata
"""


def test_splits_the_code_at_the_innermost_loop_with_mfma() -> None:
    counts = static_counts(PIPELINED)
    assert [counts.loop[name] for name in ("mfma_scaled", "global_load", "scalar", "valu")] == [2, 1, 1, 0]
    assert [counts.around[name] for name in ("mfma_scaled", "global_load", "global_store", "valu")] == [2, 1, 1, 2]


def test_peeled_steps_shorten_the_loop() -> None:
    counts = static_counts(PIPELINED)
    # 7 steps: 6 trips of the loop, one step behind it; 2 MFMA each.
    executed = counts.executed(k_steps=7)
    assert [executed[name] for name in ("mfma_scaled", "global_load", "global_store")] == [14, 7, 1]
    # The same loop unrolled twice: the code behind it does the work of two steps, the loop 2.5 trips of two.
    assert counts.executed(k_steps=7, steps_per_trip=2)["mfma_scaled"] == 7


def test_only_the_mfma_of_a_peeled_step_are_skipped_where_there_is_no_such_step() -> None:
    counts = static_counts(PIPELINED)
    assert counts.executed(k_steps=1) == counts.around
    assert counts.executed(k_steps=0) == {**counts.around, "mfma_scaled": 0, "mfma_other": 0, "mfma_clks": 0}


def test_code_without_a_matrix_loop_counts_once() -> None:
    counts = static_counts(f"k:\n\tv_mov_b32_e32 v0, 0\n{MFMA}\ts_endpgm\n")
    assert counts.loop == asdict(InstructionMix())
    assert counts.executed(k_steps=9)["mfma_scaled"] == 1


def test_the_larger_of_two_matrix_loops_is_the_hot_one() -> None:
    loops = f".LBB0_1:\n{MFMA}\ts_cbranch_scc1 .LBB0_1\n.LBB0_2:\n{MFMA}{MFMA}\ts_cbranch_scc1 .LBB0_2\n"
    counts = static_counts(f"k:\n{loops}\ts_endpgm\n")
    assert (counts.around["mfma_scaled"], counts.loop["mfma_scaled"]) == (1, 2)


def test_compiled_code_replaces_the_estimated_instructions() -> None:
    step = InstructionMix(
        mfma_scaled=4, mfma_clks=64, valu=10, packed_f32=2, valu_clks=40, lds_clks=30, vmem_clks=20, barriers=1
    )
    around = replace(step, valu_clks=60, mfma_scaled=0, mfma_clks=0, packed_f32=0, lds_clks=0, vmem_clks=0, barriers=0)
    resources = Resources(
        vgprs=128, agprs=0, sgprs=50, vgpr_spills=0, sgpr_spills=0, scratch_bytes=0, lds_bytes=0, kernarg_bytes=64
    )
    counts = StaticCounts(asdict(around), asdict(step)).executed(k_steps=3)
    estimate = CallWork(workgroups=9, waves=8, steps=3, stages=2, feed_bytes=7)
    work = with_code(estimate, counts, resources, 80_000, MI355X)
    assert (work.mfma, work.mfma_clks, work.valu_clks, work.packed_clks) == (12, 192, 180, 24)
    assert (work.lds_clks, work.vmem_clks, work.barriers) == (90, 60, 3)
    assert (work.resident, work.workgroups, work.feed_bytes) == (2, 9, 7)


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
    assembly = wanted.compile().assembly
    counts = static_counts(assembly)
    # A 64 x 64 x 256 step is 4 x 4 x 2 instructions of 16 x 16 x 128, shared by 4 waves.
    assert (counts.loop["mfma_scaled"], counts.loop["mfma_clks"]) == (8, 8 * 16)
    assert counts.executed(k_steps=10)["mfma_scaled"] == 80
    assert analyze(assembly).resources.vgpr_spills == 0
