"""formula: times worked out by hand from the machine's numbers, and laws that hold for all work."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.gfx950.machine import GPUMODE, MI355X, Machine
from search.gfx950.model.formula import (
    SOFTNESS,
    CallWork,
    kernel_time,
    total_us,
)
from search.gfx950.model.work import estimate_code_object_work

COLD = Machine(harness=GPUMODE)


def soft(*limits: float) -> float:
    return sum(limit**SOFTNESS for limit in limits) ** (1 / SOFTNESS)


def test_a_saturated_kernel_of_aiter_is_bound_by_its_matrix_cores() -> None:
    # 16 x 16 tiles of 256x256 fill 256 CUs once. A K step of 256 is 128 MFMA of 16 clk in each of 4 waves, 2048 clk;
    # 32 steps at 0.80 x 2400 MHz: 34.13 us. Operands: 512 rows of 136 B at 65.4 GB/s, 34.07 us. C: 32 MB at 4.0 TB/s,
    # 8.39 us. A and B: 2 x 4096 x 8192 x 17/32 B at 8.0 TB/s, 4.46 us, of which 0.44 is never hidden. Vector units are
    # blocked for 8 clk of each MFMA: 13.65 us. The first load: 920 clk.
    work = estimate_code_object_work(256, 256, 4096, 4096, 8192)
    time = kernel_time(work, MI355X)
    assert float(time.mfma_us) == pytest.approx(34.13, abs=0.01)
    assert float(time.feed_us) == pytest.approx(34.07, abs=0.01)
    assert float(time.write_us) == pytest.approx(8.39, abs=0.01)
    assert float(time.hbm_us) == pytest.approx(4.46, abs=0.01)
    own = 32 * 2048 / 2400
    assert float(time.latency_us) == pytest.approx(own, abs=0.01)  # one wave's own MFMA
    expected = 3.15 + 920 / 2400 + soft(34.13, 34.07, 13.65, own) + 8.39 + 0.44 * 4.46
    assert float(total_us([work], MI355X)) == pytest.approx(expected, abs=0.03)


def test_a_small_kernel_of_aiter_is_bound_by_its_operands() -> None:
    # 16 workgroups, 28 steps of (16 + 128) x 136 B at 65.4 GB/s = 0.2995 us: only 16 of 32 rows exist.
    work = estimate_code_object_work(32, 128, 16, 2048, 7168)
    time = kernel_time(work, MI355X)
    assert float(time.feed_us) == pytest.approx(28 * 0.29945, abs=0.001)
    assert max(time.mfma_us, time.latency_us, time.valu_us, time.lds_us, time.hbm_us) < time.feed_us


def test_limits_that_are_close_take_longer_together_and_tell_tiles_apart() -> None:
    one = CallWork(workgroups=1, waves=4, steps=0, lds_clks=2400)
    both = replace(one, valu_clks=2400)
    assert float(kernel_time(one, MI355X).work_us) == pytest.approx(soft(1.0, 1.0))  # the LDS, and one wave's own use
    assert float(kernel_time(both, MI355X).work_us) == pytest.approx(soft(1.0, 1.0, 2.0))  # the chain has both


def test_operands_that_the_harness_keeps_in_the_cache_arrive_sooner() -> None:
    cold = CallWork(workgroups=1, waves=4, steps=1, read_bytes=3e6)
    warm = replace(cold, read_bytes=5e5)
    assert float(kernel_time(warm, MI355X).work_us) == pytest.approx(300 / 2400)
    in_turn = 920 / 2400 + 0.44 * 3 / 8  # its latency is more than its 3 MB take at 8 TB/s
    assert float(kernel_time(cold, MI355X).work_us) == pytest.approx(in_turn)


def test_every_matrix_instruction_blocks_the_vector_unit_for_eight_clocks() -> None:
    # 100 MFMA of 16 clk and 500 VALU of 4 clk in each of 4 waves, one a SIMD: 100 x 8 + 2000 clk = 1.1667 us.
    work = CallWork(workgroups=1, waves=4, mfma=100, mfma_clks=1600, valu_clks=2000)
    time = kernel_time(work, MI355X)
    assert float(time.valu_us) == pytest.approx(2800 / 2400)
    assert float(time.mfma_us) == pytest.approx(1600 / 0.80 / 2400)


def test_packed_instructions_also_hold_up_the_matrix_cores() -> None:
    work = CallWork(workgroups=1, waves=4, mfma=100, mfma_clks=1600, valu_clks=400, packed_clks=400)
    assert float(kernel_time(work, MI355X).mfma_us) == pytest.approx((1600 / 0.80 + 400) / 2400)


def test_a_loop_without_pipelining_waits_for_every_load() -> None:
    # The first of six loads is the round's fill.
    work = CallWork(workgroups=1, waves=4, steps=6, stages=1, valu_clks=2400, read_bytes=3e6)
    assert float(kernel_time(work, MI355X).latency_us) == pytest.approx(5 * 920 / 2400 + 1.0)
    assert float(kernel_time(replace(work, from_hbm=False), MI355X).latency_us) == pytest.approx(5 * 300 / 2400 + 1.0)


@pytest.mark.parametrize("stages, step_us", [(2, 920 / 2400), (3, 920 / 2400 / 2), (9, 0.054), (12, 0.054)])
def test_a_pipelined_loop_hides_latency_down_to_the_step_floor(stages: int, step_us: float) -> None:
    work = CallWork(workgroups=1, waves=4, steps=10, stages=stages, read_bytes=3e6)
    assert float(kernel_time(work, MI355X).latency_us) == pytest.approx(9 * step_us)


def test_two_stages_with_one_step_are_not_faster_than_one_stage() -> None:
    one = CallWork(workgroups=1, waves=4, steps=1, stages=1, valu_clks=2400, read_bytes=3e6)
    times = [float(total_us([replace(one, stages=stages)], MI355X)) for stages in (1, 2, 3)]
    assert times[0] == times[1] == times[2]


def test_eight_waves_on_four_simds_compute_one_after_the_other() -> None:
    four = CallWork(workgroups=1, waves=4, valu_clks=2400)
    assert float(kernel_time(four, MI355X).latency_us) == pytest.approx(1.0)
    assert float(kernel_time(replace(four, waves=8), MI355X).latency_us) == pytest.approx(2.0)


def test_more_resident_workgroups_hide_latency_but_share_the_units() -> None:
    # 512 workgroups: alone on a CU they take two rounds; two together overlap their waiting, not their LDS traffic.
    waiting = CallWork(workgroups=512, waves=4, steps=10, stages=2, from_hbm=False)
    assert float(kernel_time(replace(waiting, resident=2), MI355X).work_us) == pytest.approx(10 * 300 / 2400)
    assert float(kernel_time(waiting, MI355X).work_us) == pytest.approx(20 * 300 / 2400)
    busy = CallWork(workgroups=512, waves=4, steps=0, stages=2, lds_clks=24000)
    assert float(kernel_time(busy, MI355X).lds_us) == pytest.approx(20.0)
    assert float(kernel_time(replace(busy, resident=2), MI355X).lds_us) == pytest.approx(20.0)


@pytest.mark.parametrize(
    "workgroups, resident, rounds", [(1, 1, 1), (256, 1, 1), (257, 1, 2), (512, 2, 2), (513, 2, 3), (769, 2, 4)]
)
def test_a_partial_round_costs_as_much_as_the_workgroups_of_its_fullest_unit(
    workgroups: int, resident: int, rounds: int
) -> None:
    work = CallWork(workgroups=workgroups, waves=4, resident=resident, lds_clks=2400, steps=0)
    assert float(kernel_time(work, MI355X).lds_us) == pytest.approx(rounds)


def test_two_waves_leave_half_of_the_simds_idle() -> None:
    # One SIMD's share of the work is the same for 1 to 4 waves; the fifth wave doubles it.
    times = [
        float(kernel_time(CallWork(workgroups=1, waves=waves, valu_clks=2400), MI355X).valu_us)
        for waves in (1, 2, 4, 5, 8)
    ]
    assert times == pytest.approx([1, 1, 1, 2, 2])


def test_operands_are_limited_by_bytes_or_by_the_memory_path() -> None:
    assert float(kernel_time(CallWork(1, 4, feed_bytes=65_400), MI355X).feed_us) == pytest.approx(1.0)
    assert float(kernel_time(CallWork(1, 4, feed_bytes=65_400, vmem_clks=1200), MI355X).feed_us) == pytest.approx(2.0)


def test_atomics_count_as_read_and_write() -> None:
    plain = kernel_time(CallWork(1, 4, written_bytes=4_000_000), MI355X)
    atomic = kernel_time(CallWork(1, 4, atomic_bytes=4_000_000), MI355X)
    assert (float(plain.write_us), float(atomic.write_us)) == pytest.approx((1.0, 2.0))


def test_cold_memory_is_slower_for_few_workgroups() -> None:
    work = CallWork(workgroups=64, waves=4, read_bytes=2_860_000)
    assert float(kernel_time(work, COLD).hbm_us) == pytest.approx(1.0)
    assert float(kernel_time(replace(work, workgroups=128), COLD).hbm_us) == pytest.approx(2.86 / 4.58)


def test_every_further_kernel_costs_a_launch_and_its_own_time() -> None:
    # Vector units and the chain of one wave take the same time: two limits.
    one = CallWork(workgroups=1, waves=4, steps=0, valu_clks=4800)
    small = CallWork(workgroups=1, waves=4, steps=0, valu_clks=2400)
    absent = replace(small, workgroups=0)
    for machine in (MI355X, COLD):
        launch, extra, unit = machine.harness.formula_us, machine.harness.extra_kernel_us, soft(1, 1)
        assert float(total_us([one], machine)) == pytest.approx(launch + 2 * unit)
        assert float(total_us([one, small], machine)) == pytest.approx(launch + 3 * unit + extra)
        assert float(total_us([one, absent], machine)) == pytest.approx(launch + 2 * unit)


AMOUNT = st.floats(0, 1e6, allow_nan=False)
UNIT_FIELDS = ["mfma", "mfma_clks", "valu_clks", "packed_clks", "lds_clks", "vmem_clks", "barriers",
               "feed_bytes", "read_bytes", "written_bytes", "atomic_bytes"]  # fmt: skip
WORKS = st.builds(
    CallWork,
    workgroups=st.integers(1, 5000),
    waves=st.sampled_from([1, 2, 4, 8, 16]),
    resident=st.integers(1, 8),
    steps=st.integers(0, 200),
    stages=st.integers(1, 4),
    from_hbm=st.booleans(),
    **dict.fromkeys(UNIT_FIELDS, AMOUNT),
)
AMOUNTS = ["steps", *UNIT_FIELDS]


@given(WORKS, st.sampled_from(AMOUNTS), AMOUNT, st.sampled_from([MI355X, COLD]))
def test_more_work_never_takes_less_time(work: CallWork, name: str, more: float, machine: Machine) -> None:
    larger = replace(work, **{name: getattr(work, name) + more})
    assert total_us([larger], machine) >= total_us([work], machine)


@given(WORKS, st.integers(0, 3000))
def test_more_workgroups_never_take_less_time_where_bandwidth_is_one_number(work: CallWork, more: int) -> None:
    larger = replace(work, workgroups=work.workgroups + more)
    assert float(total_us([larger], MI355X)) >= float(total_us([work], MI355X)) * (1 - 1e-12)


@given(WORKS, st.sampled_from([MI355X, COLD]))
def test_no_time_is_below_the_launch(work: CallWork, machine: Machine) -> None:
    assert float(total_us([work], machine)) >= machine.harness.formula_us


@given(st.lists(WORKS, min_size=2, max_size=6))
def test_columns_give_the_times_of_their_rows(works: list[CallWork]) -> None:
    works = [replace(work, from_hbm=True) for work in works]
    columns: dict[str, Any] = {
        f.name: np.array([getattr(work, f.name) for work in works]) for f in fields(CallWork) if f.name != "from_hbm"
    }
    together = np.asarray(total_us([CallWork(**columns)], MI355X))
    assert together == pytest.approx([float(total_us([work], MI355X)) for work in works])
