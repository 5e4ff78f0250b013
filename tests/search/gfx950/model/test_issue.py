"""search.gfx950.model.issue: clocks of blocks that one wave issues alone, derived by hand from the constants."""

from __future__ import annotations

from search.gfx950.model.constants import CONSTANTS
from search.gfx950.model.issue import Kind, Stretch, issue_block
from search.gfx950.simulator.decode.text import Listing, parse_statement
from search.gfx950.simulator.program import decode_program

MFMA = "v_mfma_scale_f32_16x16x128_f8f6f4 v[{0}:{1}], v[40:43], v[44:47], v[{0}:{1}], v50, v51 cbsz:4 blgp:4"


def issued(*lines: str) -> tuple[Stretch, ...]:
    listing = Listing([parse_statement(line, number) for number, line in enumerate(lines, 1)], {})
    instructions = decode_program(listing).instructions
    return issue_block(instructions, (0, len(instructions)), CONSTANTS)


def test_matrix_instructions_of_one_accumulator_take_the_sum_of_their_passes() -> None:
    (stretch,) = issued(*[MFMA.format(0, 3)] * 5, "s_endpgm")
    assert stretch.mfma == 5 * 16  # 16 clk each with FP4 operands
    assert stretch.clks == 4 * 16 + CONSTANTS.issue_clks  # the last one goes on beside what follows
    assert stretch.tail == 16


def test_a_chain_of_dependent_vector_instructions_takes_their_latency() -> None:
    (stretch,) = issued(*["v_add_u32_e32 v0, v0, v1"] * 10, "s_endpgm")
    assert stretch.clks == 10 * max(CONSTANTS.valu_latency_clks, 4)


def test_a_vector_instruction_waits_for_the_matrix_instruction_that_it_reads() -> None:
    (stretch,) = issued(MFMA.format(0, 3), "v_add_f32_e32 v20, v0, v1", "s_endpgm")
    assert stretch.clks == 16 + CONSTANTS.mfma_result_clks + CONSTANTS.issue_clks


def test_an_independent_vector_instruction_waits_for_the_blocked_clocks_only() -> None:
    (stretch,) = issued(MFMA.format(0, 3), "v_add_f32_e32 v20, v30, v31", "s_endpgm")
    assert stretch.clks == CONSTANTS.mfma_blocks_valu_clks + CONSTANTS.issue_clks


def test_a_packed_instruction_never_runs_beside_a_matrix_instruction() -> None:
    (stretch,) = issued(MFMA.format(0, 3), "v_pk_mul_f32 v[20:21], v[30:31], v[32:33]", "s_endpgm")
    assert stretch.clks == 16 + CONSTANTS.issue_clks


def test_operations_end_stretches_and_what_follows_the_last_one_is_kept() -> None:
    stretches = issued("v_mov_b32_e32 v1, v2", "ds_read_b32 v3, v1", "s_waitcnt lgkmcnt(0)", "v_mov_b32_e32 v4, v3")
    assert [stretch.kind for stretch in stretches] == [Kind.LDS, Kind.WAIT, Kind.NOTHING]
    assert [stretch.valu for stretch in stretches] == [4, 0, 4]


def test_quarter_rate_instructions_hold_the_vector_unit_four_times_as_long() -> None:
    (stretch,) = issued("v_exp_f32_e32 v0, v1", "v_exp_f32_e32 v2, v3", "s_endpgm")
    assert stretch.valu == 2 * 16
