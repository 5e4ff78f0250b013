"""Split-K in one launch, timed: what its last workgroup does behind the others is in the prediction."""

from __future__ import annotations

from functools import cache

import pytest
from compiled_programs import compiled, default_program

from kernels.families import FAMILIES
from kernels.problem import GemmShape
from search.gate.check import check_program, load_calls
from search.gfx950.machine import MI355X, Machine
from search.gfx950.model.constants import CONSTANTS
from search.gfx950.model.executed import executed_call, program_works
from search.gfx950.model.families import estimate_calls
from search.gfx950.model.formula import kernel_time
from search.gfx950.model.issue import Kind
from search.gfx950.model.launch_time import LaunchWork, supply_of
from search.gfx950.model.stream import WaveStream

SHAPE = GemmShape(16, 128, 2048)
KNOBS = {"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 256, "split_k": 4}
SLICE_BYTES = 16 * 64 * 4  # of a tile


@cache
def works(family: str) -> tuple[LaunchWork, ...]:
    program = default_program(family, SHAPE, **KNOBS)
    calls = compiled(program)
    report = check_program(program, load_calls(calls), SHAPE)
    pairs = zip(calls, report.recordings, strict=True)
    return program_works(program, [executed_call(one, recording, MI355X) for one, recording in pairs])


def test_the_workgroup_that_is_timed_is_the_last_one_of_its_tile() -> None:
    (work,) = works("fused_splitk_ticket")
    assert work.moved(Kind.LOAD)["slices_ptr"] == 4 * SLICE_BYTES
    assert work.moved(Kind.STORE)["slices_ptr"] == SLICE_BYTES
    assert work.moved(Kind.STORE)["out_ptr"] == SLICE_BYTES / 2  # bf16
    assert work.exchanged == {"slices_ptr"}


def test_slices_come_from_other_dies_and_are_no_operands() -> None:
    (ticket,), (plain, _) = works("fused_splitk_ticket"), works("fused_splitk_workspace")
    assert ticket.operands() == plain.operands()
    assert ticket.read_bytes == plain.read_bytes
    supply, other = (supply_of(one, MI355X, CONSTANTS, warm=False) for one in (ticket, plain))
    assert supply.latency["slices_ptr"] == CONSTANTS.handed_latency_clks
    assert supply.other_latency == other.other_latency
    assert supply.load_bytes_per_clk == pytest.approx(other.load_bytes_per_clk)


def test_one_wave_writes_the_l2_back_and_draws_the_ticket() -> None:
    (ticket,), (plain, _) = works("fused_splitk_ticket"), works("fused_splitk_workspace")
    counts = [[_stores(wave, buffer) for wave in ticket.workgroup] for buffer in ("", "tickets_ptr")]
    assert counts == [[1, 0, 0, 0], [2, 0, 0, 0]]  # the ticket, and the way back to zero
    assert all(_stores(wave, "") == 0 for wave in plain.workgroup)


def _stores(wave: WaveStream, buffer: str) -> int:
    return sum(event.kind is Kind.STORE and event.buffer == buffer for event in wave.events)


@pytest.mark.parametrize("split_k", [2, 8])
def test_the_formula_adds_three_round_trips_and_the_slices_to_the_gemm(split_k: int) -> None:
    machine: Machine = MI355X
    knobs = {**FAMILIES["fused_splitk_workspace"].config_type().to_dict(), **KNOBS, "split_k": split_k}
    (ticket,) = estimate_calls("fused_splitk_ticket", knobs, SHAPE, machine)
    (gemm, _) = estimate_calls("fused_splitk_workspace", knobs, SHAPE, machine)
    sum_us = split_k * SLICE_BYTES / (machine.feed_gbs * 1e3)
    out_us = 2 * SHAPE.M * SHAPE.N / (machine.write_tbs * 1e6)
    expected = float(kernel_time(gemm, machine).work_us) + 3 * machine.l2_latency_clks / machine.clock_mhz + sum_us
    assert float(kernel_time(ticket, machine).work_us) == pytest.approx(expected + out_us)
