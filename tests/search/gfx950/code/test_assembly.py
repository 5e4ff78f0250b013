"""search.gfx950.code.assembly on hand-written assembly."""

from __future__ import annotations

import pytest

from search.gfx950.code.assembly import Resources, analyze

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


def test_counts_every_instruction_once() -> None:
    mix = analyze(PIPELINED).mix
    assert (mix.mfma_scaled, mix.mfma_other, mix.cvt_scalef32, mix.valu) == (4, 0, 1, 3)
    assert (mix.global_load, mix.global_store, mix.scalar) == (2, 1, 7)


def test_needs_the_metadata_of_a_kernel() -> None:
    with pytest.raises(ValueError, match=r"no \.amdgpu_metadata"):
        analyze("k:\n\ts_endpgm\n")
    with pytest.raises(ValueError, match="lacks vgpr_count"):
        analyze(PIPELINED.replace(".vgpr_count", ".vgpr_colour"))
