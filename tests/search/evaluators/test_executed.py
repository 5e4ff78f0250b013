"""search.evaluators.offline: from counted instructions to the mix of the wave that a round waits for."""

from __future__ import annotations

from search.evaluators.offline import executed_columns, longest_wave_mix
from search.gfx950.simulator import Histogram, InstructionClass

MFMA = "v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:7], v[8:11], v[0:3], v12, v13 op_sel_hi:[0,0,0] cbsz:4 blgp:4"
# Two waves: one executes 9 instructions (3 MFMA, 2 loads to LDS, 4 VALU), the other 3 MFMA and nothing else.
BY_TEXT = {MFMA: 6, "buffer_load_dwordx4 v1, s[0:3], 0 offen lds": 2, "v_add_u32_e32 v1, v2, v3": 4}
BY_CLASS = {InstructionClass.MFMA: 6, InstructionClass.GLOBAL: 2, InstructionClass.VALU: 4}


def histogram(longest_wave: int) -> Histogram:
    return Histogram(BY_CLASS, {}, BY_TEXT, 2, longest_wave, 0, 0, 0, 0)


def test_columns_are_instructions_of_the_average_wave() -> None:
    assert executed_columns(histogram(9)) == {"executed_mfma": 3.0, "executed_global": 1.0, "executed_valu": 2.0}


def test_mix_of_equal_waves_is_that_of_one_wave_with_formats_and_lds_loads_told_apart() -> None:
    mix = longest_wave_mix(histogram(6))
    assert (mix.mfma_16x16x128, mix.mfma_clks) == (3, 48)  # FP4: 16 clk each
    assert (mix.lds_direct, mix.global_load, mix.lds_write_bytes) == (1, 1, 1024)
    assert (mix.valu, mix.valu_clks) == (2, 8)


def test_mix_is_that_of_the_longest_wave() -> None:
    assert longest_wave_mix(histogram(9)).mfma == 4.5  # 9 / 6 of the average wave's 3
