"""timing_model: times worked out by hand from the machine's numbers, and laws that hold for all work."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.problem import GemmShape
from search.gfx950.code.assembly import Analysis, Resources
from search.gfx950.code.instruction_mix import InstructionMix
from search.gfx950.machine import AITER, GPUMODE, MI355X, Machine
from search.gfx950.model.timing_model import (
    MODEL_VERSION,
    CallWork,
    kernel_time,
    predict,
    roofline_us,
    total_us,
    with_code,
)
from search.gfx950.model.work import estimate_code_object_work

SHAPE = GemmShape(16, 2112, 7168)
COLD = Machine(harness=GPUMODE)


def test_a_saturated_kernel_of_aiter_is_bound_by_its_matrix_cores() -> None:
    # 16 x 16 tiles of 256x256 fill 256 CUs once. A K step of 256 is 128 MFMA of 16 clk in each of 4 waves, 2048 clk;
    # 32 steps at 0.61 x 2400 MHz: 44.77 us. Operands: 512 rows of 136 B at 57 GB/s, 39.09 us. C: 32 MB at 3.7 TB/s,
    # 9.07 us. A and B: 2 x 4096 x 8192 x 17/32 B at 5.4 TB/s, 6.60 us.
    work = estimate_code_object_work(256, 256, 4096, 4096, 8192)
    time = kernel_time(work, MI355X)
    assert float(time.mfma_us) == pytest.approx(44.77, abs=0.01)
    assert float(time.feed_us) == pytest.approx(39.09, abs=0.01)
    assert float(time.write_us) == pytest.approx(9.07, abs=0.01)
    assert float(time.hbm_us) == pytest.approx(6.60, abs=0.01)
    assert float(time.latency_us) == pytest.approx(32 * 2048 / 2400, abs=0.01)  # one wave's own MFMA
    assert float(total_us([work], MI355X)) == pytest.approx(3.37 + 44.77 + 9.07, abs=0.02)


def test_a_small_kernel_of_aiter_is_bound_by_its_operands() -> None:
    # 16 workgroups, 28 steps of (32 + 128) x 136 B at 57 GB/s = 0.3818 us, C 64 KB at 3.7 TB/s.
    work = estimate_code_object_work(32, 128, 16, 2048, 7168)
    assert float(total_us([work], MI355X)) == pytest.approx(3.37 + 28 * 0.38175 + 0.0177, abs=0.002)
    prediction = predict([work], GemmShape(16, 2048, 7168), MI355X)
    assert prediction.bound == "feed"
    assert prediction.model == MODEL_VERSION


def test_every_matrix_instruction_blocks_the_vector_unit_for_eight_clocks() -> None:
    # 100 MFMA of 16 clk and 500 VALU of 4 clk in each of 4 waves, one a SIMD: 100 x 8 + 2000 clk = 1.1667 us.
    work = CallWork(workgroups=1, waves=4, mfma=100, mfma_clks=1600, valu_clks=2000)
    time = kernel_time(work, MI355X)
    assert float(time.valu_us) == pytest.approx(2800 / 2400)
    assert float(time.mfma_us) == pytest.approx(1600 / 0.61 / 2400)


def test_packed_instructions_also_hold_up_the_matrix_cores() -> None:
    work = CallWork(workgroups=1, waves=4, mfma=100, mfma_clks=1600, valu_clks=400, packed_clks=400)
    assert float(kernel_time(work, MI355X).mfma_us) == pytest.approx((1600 / 0.61 + 400) / 2400)


def test_a_loop_without_pipelining_waits_for_every_load() -> None:
    work = CallWork(workgroups=1, waves=4, steps=6, stages=1, valu_clks=2400)
    assert float(kernel_time(work, MI355X).latency_us) == pytest.approx(6 * 1900 / 2400 + 1.0)
    assert float(kernel_time(replace(work, from_hbm=False), MI355X).latency_us) == pytest.approx(6 * 1000 / 2400 + 1.0)


@pytest.mark.parametrize("stages, step_us", [(2, 1900 / 2400), (3, 1900 / 2400 / 2), (4, 0.31), (8, 0.31)])
def test_a_pipelined_loop_hides_latency_down_to_the_step_floor(stages: int, step_us: float) -> None:
    work = CallWork(workgroups=1, waves=4, steps=10, stages=stages)
    assert float(kernel_time(work, MI355X).latency_us) == pytest.approx(10 * step_us)


def test_more_resident_workgroups_hide_latency_but_share_the_units() -> None:
    # 512 workgroups: alone on a CU they take two rounds; two together overlap their waiting, not their LDS traffic.
    waiting = CallWork(workgroups=512, waves=4, steps=10, stages=2)
    assert float(kernel_time(replace(waiting, resident=2), MI355X).work_us) == pytest.approx(10 * 1900 / 2400)
    assert float(kernel_time(waiting, MI355X).work_us) == pytest.approx(20 * 1900 / 2400)
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
    assert float(kernel_time(CallWork(1, 4, feed_bytes=57_000), MI355X).feed_us) == pytest.approx(1.0)
    assert float(kernel_time(CallWork(1, 4, feed_bytes=57_000, vmem_clks=1200), MI355X).feed_us) == pytest.approx(2.0)


def test_atomics_count_as_read_and_write() -> None:
    plain = kernel_time(CallWork(1, 4, written_bytes=3_700_000), MI355X)
    atomic = kernel_time(CallWork(1, 4, atomic_bytes=3_700_000), MI355X)
    assert (float(plain.write_us), float(atomic.write_us)) == pytest.approx((1.0, 2.0))


def test_cold_memory_is_slower_for_few_workgroups() -> None:
    work = CallWork(workgroups=64, waves=4, read_bytes=2_860_000)
    assert float(kernel_time(work, COLD).hbm_us) == pytest.approx(1.0)
    assert float(kernel_time(replace(work, workgroups=128), COLD).hbm_us) == pytest.approx(2.86 / 4.58)


def test_every_further_kernel_costs_a_launch_and_its_own_time() -> None:
    one = CallWork(workgroups=1, waves=4, steps=0, valu_clks=4800)
    small = CallWork(workgroups=1, waves=4, steps=0, valu_clks=2400)
    absent = replace(small, workgroups=0)
    for machine in (MI355X, COLD):
        harness = machine.harness
        assert float(total_us([one], machine)) == pytest.approx(harness.launch_us + 2)
        assert float(total_us([one, small], machine)) == pytest.approx(harness.launch_us + 3 + harness.extra_kernel_us)
        assert float(total_us([one, absent], machine)) == pytest.approx(harness.launch_us + 2)
    prediction = predict([small, one], SHAPE, MI355X)
    assert prediction.valu_us == pytest.approx(2.0)  # terms are those of the largest kernel
    assert prediction.extra_us == pytest.approx(1.0 + AITER.extra_kernel_us)


def test_the_bound_is_the_largest_term_and_the_terms_explain_the_time() -> None:
    work = CallWork(workgroups=256, waves=4, steps=1, stages=2, valu_clks=24000, read_bytes=5_400_000)
    prediction = predict([work], SHAPE, MI355X)
    assert prediction.bound == "valu"
    assert prediction.predicted_us == pytest.approx(prediction.launch_us + prediction.valu_us)
    assert predict([CallWork(1, 4)], SHAPE, MI355X).bound == "launch"


def test_a_program_needs_a_launch() -> None:
    with pytest.raises(ValueError, match="at least one call"):
        predict([], SHAPE, MI355X)


def test_the_roofline_is_memory_for_small_m_and_compute_for_large() -> None:
    # 2 x 16 x (7168 + 2112) + 2112 x 7168 x 17/32 B at 8 TB/s.
    assert roofline_us(SHAPE, MI355X) == pytest.approx((296_960 + 8_042_496) / 8e6)
    # 2 x 16384 x 8192 x 28672 at 10.066 PFLOP/s.
    large = GemmShape(16384, 8192, 28672)
    assert roofline_us(large, MI355X) == pytest.approx(764.6, abs=0.2)
    assert predict([CallWork(1, 4)], SHAPE, MI355X).roofline_fraction == pytest.approx(
        roofline_us(SHAPE, MI355X) / predict([CallWork(1, 4)], SHAPE, MI355X).predicted_us
    )


def test_compiled_code_replaces_the_estimated_instructions() -> None:
    step = InstructionMix(
        mfma_scaled=4, mfma_clks=64, valu=10, packed_f32=2, valu_clks=40, lds_clks=30, vmem_clks=20, barriers=1
    )
    resources = Resources(
        vgprs=128, agprs=0, sgprs=50, vgpr_spills=0, sgpr_spills=0, scratch_bytes=0, lds_bytes=0, kernarg_bytes=64
    )
    around = InstructionMix(valu=5, valu_clks=20)
    analysis = Analysis(resources, around + step, around, step, InstructionMix())
    work = with_code(CallWork(workgroups=9, waves=8, steps=3, stages=2, feed_bytes=7), analysis, 80_000, MI355X)
    assert (work.mfma, work.mfma_clks, work.valu_clks, work.packed_clks) == (12, 192, 140, 24)
    assert (work.lds_clks, work.vmem_clks, work.barriers) == (90, 60, 3)
    assert (work.resident, work.workgroups, work.feed_bytes) == (2, 9, 7)


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
    assert float(total_us([work], machine)) >= machine.harness.launch_us


@given(st.lists(WORKS, min_size=2, max_size=6))
def test_columns_give_the_times_of_their_rows(works: list[CallWork]) -> None:
    works = [replace(work, from_hbm=True) for work in works]
    columns: dict[str, Any] = {
        f.name: np.array([getattr(work, f.name) for work in works]) for f in fields(CallWork) if f.name != "from_hbm"
    }
    together = np.asarray(total_us([CallWork(**columns)], MI355X))
    assert together == pytest.approx([float(total_us([work], MI355X)) for work in works])
