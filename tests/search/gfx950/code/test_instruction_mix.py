"""search.gfx950.code.instruction_mix: kinds and clocks of single instructions, and their sum."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from search.gfx950.code.instruction_mix import InstructionMix, mix_of

FP4 = "v[0:3], v[4:7], v[8:11], v[0:3], v12, v13 op_sel_hi:[0,0,0] cbsz:4 blgp:4"
FP8_BY_FP4 = "v[0:3], v[4:11], v[12:15], v[0:3], v16, v17 op_sel_hi:[0,0,0] blgp:4"


def filled(mix: InstructionMix) -> dict[str, float]:
    return {name: value for name, value in asdict(mix).items() if value}


# Clocks of MFMA: gfx950 table, 16x16x128 takes 16 (FP4, FP6) or 32 (FP8); 32x32x64 32 or 64; bf16 at a quarter of FP4.
@pytest.mark.parametrize(
    "mnemonic, operands, expected",
    [
        ("v_mfma_scale_f32_16x16x128_f8f6f4", FP4, {"mfma_scaled": 1, "mfma_clks": 16}),
        ("v_mfma_scale_f32_16x16x128_f8f6f4", FP8_BY_FP4, {"mfma_scaled": 1, "mfma_clks": 32}),
        ("v_mfma_scale_f32_32x32x64_f8f6f4", FP4, {"mfma_scaled": 1, "mfma_clks": 32}),
        ("v_mfma_scale_f32_32x32x64_f8f6f4", FP8_BY_FP4, {"mfma_scaled": 1, "mfma_clks": 64}),
        ("v_mfma_f32_16x16x32_bf16", "a[0:3], v[0:3], v[4:7], a[0:3]", {"mfma_other": 1, "mfma_clks": 16}),
        ("v_mfma_f32_32x32x16_f16", "a[0:15], v[0:3], v[4:7], a[0:15]", {"mfma_other": 1, "mfma_clks": 32}),
        ("v_mfma_f32_16x16x32_fp8_fp8", "v[0:3], v[4:5], v[6:7], v[0:3]", {"mfma_other": 1, "mfma_clks": 16}),
    ],
)
def test_counts_matrix_instructions(mnemonic: str, operands: str, expected: dict[str, float]) -> None:
    assert filled(mix_of([(mnemonic, operands)])) == expected


@pytest.mark.parametrize(
    "mnemonic, expected",
    [
        ("v_add_u32_e32", {"valu": 1, "valu_clks": 4}),
        ("v_mov_b32_dpp", {"valu": 1, "valu_clks": 4}),
        ("v_accvgpr_read_b32", {"valu": 1, "valu_clks": 4}),
        ("v_exp_f32_e32", {"valu": 1, "transcendental": 1, "valu_clks": 16}),
        ("v_rcp_iflag_f32_e32", {"valu": 1, "transcendental": 1, "valu_clks": 16}),
        ("v_ldexp_f32", {"valu": 1, "valu_clks": 4}),
        ("v_mul_lo_u32", {"valu": 1, "valu_clks": 16}),
        ("v_mul_u32_u24_e32", {"valu": 1, "valu_clks": 4}),
        ("v_mad_u64_u32", {"valu": 1, "valu_clks": 16}),
        ("v_lshl_add_u64", {"valu": 1, "valu_clks": 8}),
        ("v_pk_add_f32", {"valu": 1, "packed_f32": 1, "valu_clks": 4}),
        ("v_cvt_scalef32_pk_fp4_f32", {"valu": 1, "cvt_scalef32": 1, "valu_clks": 4}),
    ],
)
def test_counts_vector_instructions(mnemonic: str, expected: dict[str, float]) -> None:
    assert filled(mix_of([(mnemonic, "v0, v1, v2")])) == expected


# LDS clocks: ds_read_b128 one per 16 clk and SIMD, b64 one per 8 (measured); bytes are those of 64 lanes.
@pytest.mark.parametrize(
    "mnemonic, expected",
    [
        ("ds_read_b128", {"lds_read": 1, "lds_clks": 16}),
        ("ds_read_b64", {"lds_read": 1, "lds_clks": 8}),
        ("ds_read_b64_tr_b8", {"lds_read": 1, "lds_clks": 8}),
        ("ds_read2st64_b32", {"lds_read": 1, "lds_clks": 8}),
        ("ds_read_u8_d16_hi", {"lds_read": 1, "lds_clks": 4}),
        ("ds_write_b8", {"lds_write": 1, "lds_clks": 4}),
        ("ds_write2_b64", {"lds_write": 1, "lds_clks": 16}),
        ("ds_bpermute_b32", {"lds_read": 1, "lds_clks": 4}),
        ("ds_add_f32", {"lds_write": 1, "lds_clks": 4}),
    ],
)
def test_counts_lds_accesses(mnemonic: str, expected: dict[str, float]) -> None:
    assert filled(mix_of([(mnemonic, "v0, v1")])) == expected


# Vector memory clocks: dwordx4 16 clk and dword 4 clk of the CU's 64 B/clk path (measured).
@pytest.mark.parametrize(
    "mnemonic, operands, expected",
    [
        (
            "buffer_load_dwordx4",
            "v[0:3], v4, s[0:3], 0 offen",
            {"global_load": 1, "vmem_clks": 16},
        ),
        ("global_load_ubyte_d16", "v0, v[1:2], off", {"global_load": 1, "vmem_clks": 4}),
        ("global_store_short", "v[0:1], v2, off", {"global_store": 1, "vmem_clks": 4}),
        ("global_atomic_add_f32", "v0, v1, s[0:1]", {"global_atomic": 1, "vmem_clks": 4}),
        (
            "global_atomic_add_x2",
            "v0, v[1:2], s[0:1]",
            {"global_atomic": 1, "vmem_clks": 8},
        ),
        ("scratch_store_dwordx2", "off, v[0:1], off", {"scratch": 1, "vmem_clks": 8}),
    ],
)
def test_counts_memory_accesses(mnemonic: str, operands: str, expected: dict[str, float]) -> None:
    assert filled(mix_of([(mnemonic, operands)])) == expected


@pytest.mark.parametrize(
    "mnemonic, operands",
    [("buffer_load_dword", "v1, s[0:3], 0 offen lds"), ("global_load_lds_dword", "v[0:1], off")],
)
def test_a_load_to_lds_counts_on_both_sides(mnemonic: str, operands: str) -> None:
    assert filled(mix_of([(mnemonic, operands)])) == {
        "global_load": 1,
        "vmem_clks": 4,
        "lds_direct": 1,
        "lds_clks": 4,
    }


def test_counts_scalar_instructions_waits_and_barriers() -> None:
    text = ["s_add_i32", "s_load_dwordx4", "s_cbranch_scc1", "s_waitcnt", "s_barrier", "buffer_wbl2"]
    assert filled(mix_of([(mnemonic, "") for mnemonic in text])) == {"scalar": 3, "waits": 2, "barriers": 1}


def test_instructions_that_come_again_count_again() -> None:
    pairs = [("v_add_u32_e32", "v0, v1, v2"), ("s_barrier", ""), ("v_add_u32_e32", "v0, v1, v2"), ("v_exp_f32", "v0")]
    assert filled(mix_of(pairs)) == {"valu": 3, "transcendental": 1, "valu_clks": 24, "barriers": 1}
    assert mix_of([]) == InstructionMix()
