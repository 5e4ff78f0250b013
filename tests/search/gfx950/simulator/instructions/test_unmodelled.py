"""Instructions of gfx950 that no kernel here has: refused by name, so that code with one is never called right."""

from __future__ import annotations

import pytest
from snippets import run

from search.gfx950.simulator.state.findings import UnknownInstructionError

UNMODELLED = {
    "sparse matrices": "v_smfmac_f32_16x16x64_bf16 v[0:3], v[4:7], v[8:15], v16",
    "sums in f64": "v_mfma_f64_16x16x4_f64 v[0:7], v[8:9], v[10:11], v[0:7]",
    "several products in one": "v_mfma_f32_32x32x1_2b_f32 v[0:31], v32, v33, v[0:31]",
    "six bits": "v_cvt_scalef32_pk32_f32_fp6 v[0:31], v[32:37], v38",
    "six bits, transposed": "ds_read_b96_tr_b6 v[0:2], v3",
    "stochastic FP4": "v_cvt_scalef32_sr_pk_fp4_f32 v0, v[2:3], v4, v5",
    "stochastic FP8": "v_cvt_sr_fp8_f32 v0, v1, v2",
    "where the code lies": "s_getpc_b64 s[0:1]",
    "a call": "s_swappc_b64 s[30:31], s[4:5]",
    "the mode": "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 3",
    "the clock": "s_memtime s[0:1]",
    "scalar stores": "s_store_dword s0, s[2:3], 0x0",
    "formats": "tbuffer_load_format_x v0, off, s[4:7], 0",
}


@pytest.mark.parametrize("text", UNMODELLED.values(), ids=UNMODELLED.keys())
def test_unmodelled_instructions_are_refused_by_name(text: str) -> None:
    name = text.partition(" ")[0]
    with pytest.raises(UnknownInstructionError, match=f"line 1: unmodelled instruction {name}: {name} "):
        run(text)
