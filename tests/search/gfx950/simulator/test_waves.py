"""Control flow of several waves and workgroups: branches, barriers, budgets."""

from __future__ import annotations

import numpy as np
import pytest
from snippets import kernel

from search.gfx950.simulator import (
    DecodedKernel,
    FindingKind,
    InstructionClass,
    SimulatedBuffer,
    SimulatedLaunch,
    SimulationResult,
    simulate,
)

HEAD = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
s_load_dword s6, s[0:1], 0x8
v_readfirstlane_b32 s7, v0
s_lshr_b32 s7, s7, 6
s_waitcnt lgkmcnt(0)
"""
TAIL = """
s_lshl_b32 s9, s2, 10
v_lshl_add_u32 v1, v0, 2, s9
v_mov_b32_e32 v2, s8
global_store_dword v1, v2, s[4:5]
s_endpgm
"""


def launch(
    subject: DecodedKernel, value: int, waves: int = 4, grid: int = 2, **more: int
) -> tuple[np.ndarray, SimulationResult]:
    """(stored words [grid, waves, 64], result)."""
    out = np.zeros((grid, 4, 64), np.uint32)
    launched = SimulatedLaunch({"out": out, "n": value}, (grid, 1, 1), (waves * 64, 1, 1))
    return out, simulate(subject, launched, **more)


def test_waves_of_different_trip_counts_meet_again() -> None:
    body = (
        HEAD
        + "s_mov_b32 s8, 0\nloop:\ns_add_u32 s8, s8, s6\ns_sub_u32 s7, s7, 1\ns_cmp_lt_i32 s7, 0\ns_cbranch_scc0 loop\n"
        + TAIL
    )
    out, result = launch(kernel(body), 10)
    assert out[:, :, 0].tolist() == [[10, 20, 30, 40]] * 2
    assert result.clean
    histogram = result.histogram
    assert histogram.by_mnemonic["s_add_u32"] == 2 * (1 + 2 + 3 + 4)
    assert histogram.by_class[InstructionClass.GLOBAL] == 8
    assert histogram.per_wave()[InstructionClass.WAIT] == 1.0
    assert histogram.total == sum(histogram.by_mnemonic.values())
    assert histogram.global_written_bytes == out.nbytes


def test_both_sides_of_a_branch_run() -> None:
    body = (
        HEAD
        + "s_cmp_eq_u32 s7, 1\ns_cbranch_scc1 other\ns_mov_b32 s8, 5\ns_branch join\nother:\ns_mov_b32 s8, 7\njoin:\n"
        + TAIL
    )
    out, result = launch(kernel(body), 0)
    assert out[:, :, 0].tolist() == [[5, 7, 5, 5]] * 2
    assert result.clean


COUNT = """
v_mov_b32_e32 v1, 0
v_mov_b32_e32 v3, 1
global_atomic_add v4, v1, v3, s[4:5] sc0
s_waitcnt vmcnt(0)
ds_write_b32 v1, v4
s_waitcnt lgkmcnt(0)
s_barrier
s_add_u32 s9, s2, 1
s_lshl_b32 s9, s9, 10
v_lshl_add_u32 v1, v0, 2, s9
global_store_dword v1, v4, s[4:5]
s_endpgm
"""


@pytest.mark.parametrize("turns", [[2, 0, 1], [0, 1, 2]])
def test_workgroups_take_their_turns_at_the_first_atomic(turns: list[int]) -> None:
    out = np.zeros((4, 4, 64), np.uint32)
    launched = SimulatedLaunch({"out": out, "n": 0}, (3, 1, 1), (64, 1, 1), dynamic_lds_bytes=256)
    result = simulate(kernel(HEAD + COUNT), launched, turns=turns)
    assert result.clean
    assert (out[1:, 0] // 64).tolist() == [[turn] * 64 for turn in turns]  # 64 lanes came before each later turn
    assert out[0, 0, 0] == 3 * 64
    stores = result.stores["out"]
    assert stores.before[stores.offset == 0].tolist() == list(range(3 * 64))


def test_only_chosen_workgroups_run() -> None:
    out, result = launch(kernel(HEAD + "s_mov_b32 s8, 3\n" + TAIL), 0, workgroups=[(1, 0, 0)])  # type: ignore[arg-type]
    assert out[0].sum() == 0
    assert (out[1] == 3).all()
    assert result.workgroups == ((1, 0, 0),)


EXCHANGE = """
v_lshlrev_b32_e32 v3, 2, v0
ds_write_b32 v3, v0
{wait}
{barrier}
v_xor_b32_e32 v3, 0x100, v3
ds_read_b32 v4, v3
s_waitcnt lgkmcnt(0)
v_readfirstlane_b32 s8, v4
"""


def test_a_barrier_makes_lds_visible_to_the_other_waves() -> None:
    body = HEAD + EXCHANGE.format(wait="s_waitcnt lgkmcnt(0)", barrier="s_barrier") + TAIL
    out, result = launch(kernel(body, lds_bytes=1024), 0)
    assert out[:, :, 0].tolist() == [[64, 0, 192, 128]] * 2
    assert result.clean


@pytest.mark.parametrize(("wait", "barrier"), [("s_waitcnt lgkmcnt(0)", "s_nop 0"), ("s_nop 0", "s_barrier")])
def test_a_missing_barrier_or_wait_is_a_race(wait: str, barrier: str) -> None:
    body = HEAD + EXCHANGE.format(wait=wait, barrier=barrier) + TAIL
    _, result = launch(kernel(body, lds_bytes=1024), 0)
    assert {finding.kind for finding in result.findings} == {FindingKind.LDS_RACE}


def test_a_direct_load_needs_wait_and_barrier_before_other_waves_read_it() -> None:
    body = HEAD + """
    s_mov_b32 s10, 0x7ffffffe
    s_mov_b32 s11, 0x27000
    s_mov_b64 s[8:9], s[4:5]
    s_lshl_b32 s12, s7, 8
    s_mov_b32 m0, s12
    v_lshlrev_b32_e32 v3, 2, v0
    buffer_load_dword v3, s[8:11], 0 offen lds
    {wait}
    s_barrier
    v_xor_b32_e32 v3, 0x100, v3
    ds_read_b32 v4, v3
    s_waitcnt lgkmcnt(0)
    v_readfirstlane_b32 s8, v4
    """ + TAIL  # fmt: skip
    _, result = launch(kernel(body.format(wait="s_waitcnt vmcnt(0)"), lds_bytes=1024), 0, grid=1)
    assert result.clean
    _, result = launch(kernel(body.format(wait="s_nop 0"), lds_bytes=1024), 0, grid=1)
    kinds = {finding.kind for finding in result.findings}
    assert kinds == {FindingKind.LDS_READ_BEFORE_WAIT, FindingKind.LDS_LOAD_AT_END}


def test_waves_may_reach_a_barrier_at_different_places() -> None:
    body = (
        HEAD
        + "s_mov_b32 s8, 1\ns_cmp_eq_u32 s7, 1\ns_cbranch_scc1 other\n"
        + "s_barrier\ns_branch join\nother:\ns_barrier\njoin:\n"
        + TAIL
    )
    _, result = launch(kernel(body), 0)
    assert result.clean


def test_a_barrier_that_some_waves_never_reach_is_found() -> None:
    body = HEAD + "s_mov_b32 s8, 1\ns_cmp_eq_u32 s7, 1\ns_cbranch_scc1 join\ns_barrier\njoin:\n" + TAIL
    _, result = launch(kernel(body), 0)
    assert {finding.kind for finding in result.findings} == {FindingKind.BARRIER_MISMATCH}


def test_a_wave_that_never_ends_is_stopped() -> None:
    _, result = launch(kernel(HEAD + "loop:\ns_nop 0\ns_branch loop"), 0, budget=1000)
    (finding,) = result.findings
    assert finding.kind is FindingKind.INSTRUCTION_BUDGET


def test_running_off_the_end_is_found() -> None:
    _, result = launch(kernel(HEAD + "s_nop 0"), 0)
    assert {finding.kind for finding in result.findings} == {FindingKind.RAN_OFF_END}


def test_a_finding_names_workgroup_wave_and_line() -> None:
    body = (
        HEAD
        + "s_mov_b32 s8, 1\ns_cmp_lg_u32 s7, 2\ns_cbranch_scc1 join\n"
        + "v_mov_b32_e32 v9, v10\nglobal_load_dword v9, v9, s[4:5]\njoin:\n"
        + TAIL
    )
    _, result = launch(kernel(body), 0)
    finding = next(f for f in result.findings if f.kind is FindingKind.UNINITIALISED_ADDRESS)
    assert (finding.workgroup, finding.wave) == ((0, 0, 0), 2)
    assert finding.text == "global_load_dword v9, v9, s[4:5]"
    assert "v9" in str(finding)


def test_the_last_wave_of_an_odd_block_is_partly_active() -> None:
    out = np.zeros((1, 4, 64), np.uint32)
    subject = kernel(HEAD + "s_mov_b32 s8, 1\n" + TAIL)
    simulate(subject, SimulatedLaunch({"out": out, "n": 0}, (1, 1, 1), (70, 1, 1)))
    assert out.sum() == 70


def test_an_uninitialised_output_that_is_written_is_fine() -> None:
    out = np.zeros((2, 4, 64), np.uint32)
    launched = SimulatedLaunch({"out": SimulatedBuffer(out, initialised=False), "n": 0}, (2, 1, 1), (256, 1, 1))
    assert simulate(kernel(HEAD + "s_mov_b32 s8, 1\n" + TAIL), launched).clean
    assert (out == 1).all()


@pytest.mark.parametrize(("barrier", "clean"), [("s_barrier", True), ("s_nop 0", False)])
def test_overwriting_what_another_wave_still_reads_is_a_race(barrier: str, clean: bool) -> None:
    body = HEAD + EXCHANGE.format(wait="s_waitcnt lgkmcnt(0)", barrier="s_barrier") + f"""
    {barrier}
    v_lshlrev_b32_e32 v3, 2, v0
    ds_write_b32 v3, v0
    """ + TAIL  # fmt: skip
    _, result = launch(kernel(body, lds_bytes=1024), 0)
    assert result.clean is clean
    assert {finding.kind for finding in result.findings} <= {FindingKind.LDS_RACE}


DIRECT = (
    HEAD
    + """
s_mov_b32 s10, 0x7ffffffe
s_mov_b32 s11, 0x27000
s_mov_b64 s[8:9], s[4:5]
s_mov_b32 m0, 0
v_lshlrev_b32_e32 v3, 2, v0
buffer_load_dword v3, s[8:11], 0 offen {lds}
{wait}
s_endpgm
"""
)


@pytest.mark.parametrize(
    ("lds", "wait", "clean"), [("lds", "s_waitcnt vmcnt(0)", True), ("lds", "s_nop 0", False), ("", "s_nop 0", False)]
)
def test_a_load_into_lds_that_outlives_its_wave_is_found(lds: str, wait: str, clean: bool) -> None:
    text = DIRECT.format(lds=lds, wait=wait)
    if not lds:  # into a register, which dies with the wave
        text, clean = text.replace("buffer_load_dword v3,", "buffer_load_dword v4, v3,"), True
    _, result = launch(kernel(text, lds_bytes=1024), 0, grid=1)
    assert {finding.kind for finding in result.findings} == (set() if clean else {FindingKind.LDS_LOAD_AT_END})


def stored(value: str, place: str, grid: int = 2, waves: int = 1) -> SimulationResult:
    """Each lane stores v2 = ``value`` at byte v1 = ``place`` of the output; s2 is the workgroup, s7 the wave."""
    body = HEAD + f"{place}\n{value}\nglobal_store_dword v1, v2, s[4:5]\ns_endpgm"
    return launch(kernel(body), 0, waves=waves, grid=grid)[1]


OWN_WORKGROUP = "s_lshl_b32 s9, s2, 10\nv_lshl_add_u32 v1, v0, 2, s9"
SAME_PLACE = "v_lshlrev_b32_e32 v1, 2, v0"


@pytest.mark.parametrize(
    ("value", "place", "clean"),
    [
        ("v_mov_b32_e32 v2, s2", OWN_WORKGROUP, True),
        ("v_mov_b32_e32 v2, 5", SAME_PLACE, True),  # twice, but the same
        ("v_mov_b32_e32 v2, s2", SAME_PLACE, False),
        # The last element of workgroup 0 is the first of workgroup 1.
        ("v_mov_b32_e32 v2, s2", "s_mul_i32 s9, s2, 252\nv_lshl_add_u32 v1, v0, 2, s9", False),
    ],
)
def test_two_workgroups_that_store_different_values_at_one_place_are_found(value: str, place: str, clean: bool) -> None:
    result = stored(value, place)
    assert {finding.kind for finding in result.findings} == (set() if clean else {FindingKind.CONFLICTING_STORES})


@pytest.mark.parametrize("first", [0, 1])
def test_two_that_disagree_are_found_in_either_order(first: int) -> None:
    # Workgroups take turns: the one whose number is s8 stores first, the other one later.
    body = (
        HEAD + f"v_lshlrev_b32_e32 v1, 2, v0\nv_mov_b32_e32 v2, s2\ns_cmp_eq_u32 s2, {first}\ns_cbranch_scc1 now\n"
        "s_branch later\nnow:\nglobal_store_dword v1, v2, s[4:5]\ns_endpgm\n"
        "later:\nglobal_store_dword v1, v2, s[4:5]\ns_endpgm"
    )  # fmt: skip
    _, result = launch(kernel(body), 0, waves=1)
    (finding,) = result.findings
    assert finding.kind is FindingKind.CONFLICTING_STORES
    assert finding.workgroup == (1 - first, 0, 0) and f"workgroup ({first}, 0, 0)" in finding.detail


def test_two_waves_of_a_workgroup_that_disagree_are_found() -> None:
    result = stored("v_mov_b32_e32 v2, s7", "v_and_b32_e32 v1, 63, v0\nv_lshlrev_b32_e32 v1, 2, v1", grid=1, waves=2)
    assert {finding.kind for finding in result.findings} == {FindingKind.CONFLICTING_STORES}


def test_a_result_tells_where_every_store_went_and_whose_it_was() -> None:
    result = stored("v_mov_b32_e32 v2, 5", OWN_WORKGROUP)
    runs = result.stores["out"]
    assert sorted(runs.offset.tolist()) == [*range(0, 256, 4), *range(1024, 1280, 4)]
    assert set(runs.size.tolist()) == {4}
    assert (result.wave_workgroup[runs.wave] == runs.offset // 1024).all()
