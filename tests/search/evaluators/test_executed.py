"""search.evaluators.execution: from counted instructions to columns."""

from __future__ import annotations

from search.evaluators.execution import executed_columns
from search.gfx950.simulator import Histogram, InstructionClass

MFMA = "v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:7], v[8:11], v[0:3], v12, v13 op_sel_hi:[0,0,0] cbsz:4 blgp:4"
# Two waves: one executes 9 instructions (3 MFMA, 2 loads to LDS, 4 VALU), the other 3 MFMA and nothing else.
BY_TEXT = {MFMA: 6, "buffer_load_dwordx4 v1, s[0:3], 0 offen lds": 2, "v_add_u32_e32 v1, v2, v3": 4}
BY_CLASS = {InstructionClass.MFMA: 6, InstructionClass.GLOBAL: 2, InstructionClass.VALU: 4}


def histogram(longest_wave: int) -> Histogram:
    return Histogram(BY_CLASS, {}, BY_TEXT, 2, longest_wave, 0, 0, 0, 0)


def test_columns_are_instructions_of_the_average_wave() -> None:
    assert executed_columns(histogram(9)) == {"executed_mfma": 3.0, "executed_global": 1.0, "executed_valu": 2.0}
