"""The list of gfx950's instructions, and what is said of those that are refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from simulated_instructions import accepted, class_of, is_executed, mnemonics


def test_mnemonics_stand_behind_their_length() -> None:
    assert mnemonics(b"\x00\x09s_nop\x09v_mov_b32\x05s_nop") == {"v_mov_b32", "s_nop"}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("v_smfmac_i32_32x32x64_i8", "sparse matrices"),
        ("v_mfma_f64_16x16x4_f64", "matrices of f64, several products"),
        ("ds_read_b96_tr_b6", "6-bit formats"),
        ("ds_mskor_rtn_b64", "rest of LDS"),
        ("v_cvt_scalef32_sr_pk_fp4_bf16", "stochastic rounding"),
        ("s_getpc_b64", "calls, mode, clock, messages"),
        ("s_buffer_atomic_add", "scalar stores, atomics"),
    ],
)
def test_refused_instructions_have_a_class(name: str, kind: str) -> None:
    assert class_of(name) == kind and not is_executed(name)


@pytest.mark.skipif(shutil.which("llvm-mc-22") is None, reason="llvm-mc-22 is not installed")
def test_the_assembler_tells_gfx950s_instructions_from_others() -> None:
    names = ["v_mfma_scale_f32_16x16x128_f8f6f4", "v_wmma_f32_16x16x16_f16", "v_nonsense", "v_mfma_f32_16x16x16f16"]
    assert accepted(names, Path(str(shutil.which("llvm-mc-22")))) == names[:1]
