"""Workgroups that hand work to one another: every order of arrival, and each step of the hand-over that is left out."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from functools import cache

import pytest
from compiled_programs import compiled, default_program

from kernels.errors import WrongResultError
from kernels.launches.coverage import TileCoverage
from kernels.launches.program import Program
from kernels.problem import GemmShape
from search.gate.arrivals import EXHAUSTIVE, arrivals, last_arrivals, orders
from search.gate.check import GateReport, check_program, load_calls
from search.gate.sample import take_sample
from search.gfx950.simulator import SimulatedBuffer

SHAPE = GemmShape(17, 128, 1024)
SPLIT_K = 4
WAIT = r"\ts_waitcnt vmcnt\(0\)\n"
NO_RELEASE, NO_ACQUIRE = "stale_read: .* without release at device scope", "stale_read: .* acquire at device scope"


@cache
def program() -> Program:
    """Two by two tiles of four workgroups of four waves."""
    return default_program("fused_splitk_ticket", SHAPE, BLOCK_M=16, BLOCK_N=64, BLOCK_K=256, split_k=SPLIT_K)


def check_edited(pattern: str, replacement: str, *, every_order: bool = False) -> GateReport:
    """Execute the compiled kernel with one place of its assembly changed."""
    (one,) = compiled(program())
    text, count = re.subn(pattern, replacement, one.kernel.assembly)
    assert count == 1
    edited = replace(one, kernel=replace(one.kernel, assembly=text))
    return check_program(program(), load_calls([edited]), SHAPE, every_order=every_order)


@pytest.mark.parametrize("every_order", [False, True])
def test_every_order_of_arrival_gives_the_same_bits(every_order: bool) -> None:
    report = check_edited(r"buffer_wbl2 sc1", "buffer_wbl2 sc1", every_order=every_order)
    assert 0 < report.max_rel_error <= 2**-8


@pytest.mark.parametrize(
    ("pattern", "replacement", "finding"),
    [
        pytest.param(r"\tbuffer_wbl2 sc1\n", "", NO_RELEASE, id="no write-back"),
        pytest.param(r"buffer_wbl2 sc1", "buffer_wbl2 sc0", NO_RELEASE, id="write-back of a smaller scope"),
        pytest.param(rf"(buffer_wbl2 sc1\n){WAIT}", r"\1", NO_RELEASE, id="write-back not waited for"),
        pytest.param(r"(ASMSTART\n)\ts_waitcnt vmcnt\(0\)\n", r"\1", NO_RELEASE, id="stores not waited for"),
        pytest.param(r"\ts_barrier\n(\ts_barrier\n\ts_and_saveexec)", r"\1", "", id="one barrier of two"),
        pytest.param(r"\ts_barrier\n\ts_barrier\n(\ts_and_saveexec)", r"\1", NO_RELEASE, id="no barrier"),
        pytest.param(r"\tbuffer_inv sc1\n", "", NO_ACQUIRE, id="no invalidation"),
        pytest.param(r"buffer_inv sc1", "buffer_inv sc0", NO_ACQUIRE, id="invalidation of a smaller scope"),
        pytest.param(rf"({WAIT})(\tbuffer_inv sc1\n)", r"\2\1", NO_ACQUIRE, id="invalidation ahead of the ticket"),
        pytest.param(r"(v_cmp_ne_u32_e32 vcc, )3, ", r"\g<1>2, ", NO_ACQUIRE, id="not the last one"),
        pytest.param(r"\tglobal_atomic_swap .*\n", "", r"tickets\[0\] is 4 after the launch", id="ticket left open"),
    ],
)
def test_each_step_of_the_hand_over_is_needed(pattern: str, replacement: str, finding: str) -> None:
    if not finding:  # Triton puts a barrier of its own where the ticket goes through the LDS
        check_edited(pattern, replacement)
        return
    with pytest.raises(WrongResultError, match=finding):
        check_edited(pattern, replacement)


def test_a_launch_behind_another_one_arrives_in_every_order_too() -> None:
    knobs: dict[str, int | str] = {"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 256, "split_k": 3}
    staged = default_program("staged_splitk_ticket", SHAPE, **knobs)
    assert [call.name for call in staged.calls] == ["quantize_kernel", "staged_ticket_kernel"]
    quantize, multiply = compiled(staged)
    assert check_program(staged, load_calls([quantize, multiply]), SHAPE).max_rel_error <= 2**-8
    text, count = re.subn(r"\tbuffer_wbl2 sc1\n", "", multiply.kernel.assembly)
    mutant = replace(multiply, kernel=replace(multiply.kernel, assembly=text))
    assert count == 1
    with pytest.raises(WrongResultError, match=NO_RELEASE):
        check_program(staged, load_calls([quantize, mutant]), SHAPE)


def test_workgroups_of_unequal_shares_arrive_in_every_order_too() -> None:
    """Side by side the shorter share always came first: five steps of which one workgroup has two."""
    shape = GemmShape(17, 128, 1280)
    unequal = default_program("fused_splitk_ticket", shape, BLOCK_M=16, BLOCK_N=64, BLOCK_K=256, split_k=4)
    assert check_program(unequal, load_calls(compiled(unequal)), shape, every_order=True).max_rel_error <= 2**-8


def test_bits_that_depend_on_the_order_are_no_result() -> None:
    first = take_sample(program(), SHAPE)
    out = first.memory["out"].array.copy()
    out[3, 5] ^= 1
    other = replace(first, memory={**first.memory, "out": SimulatedBuffer(out)})
    with pytest.raises(
        WrongResultError, match=r"C\[3, 5\] depends on the order in which workgroups arrive \(1 element\)"
    ):
        other.reject_other_bits(first)


@pytest.mark.parametrize(("tiles", "rounds"), [(1, 4), (3, 2), (5, 1)])
def test_every_workgroup_is_the_last_one_of_some_tile(tiles: int, rounds: int) -> None:
    coverage = TileCoverage(16, 64 * 40, 16, 64, split_k=4)
    given = [(x, y, 0) for y in range(4) for x in range(tiles)]
    found = list(last_arrivals(given, coverage))
    assert len(found) == rounds
    assert all([x for x, _, _ in last] == list(range(len(last))) for last in found)
    assert [split for last in found for _, split, _ in last] == list(range(4))


def test_the_only_workgroup_of_a_tile_is_its_last() -> None:
    assert list(last_arrivals([(0, 0, 0)], TileCoverage(16, 64, 16, 64))) == [((0, 0, 0),)]


def test_orders_are_all_of_a_few_and_a_sample_of_more() -> None:
    given = tuple(range(EXHAUSTIVE))
    assert orders(EXHAUSTIVE) == list(itertools.permutations(given))
    more = orders(14)
    assert more[:2] == [tuple(range(14)), tuple(reversed(range(14)))]
    assert len(set(more)) == 8 and all(sorted(order) == list(range(14)) for order in more)
    assert orders(1) == [(0,)]


@pytest.mark.parametrize(("tiles", "rounds"), [(1, 24), (5, 5), (40, 1)])
def test_every_order_is_the_turn_of_some_tile(tiles: int, rounds: int) -> None:
    coverage = TileCoverage(16, 64 * 40, 16, 64, split_k=4)
    given = [(x, y, 0) for y in range(4) for x in range(tiles)]
    found = list(arrivals(given, coverage))
    assert len(found) == rounds
    assert all([len(turn) for turn in turns] == [tiles] * 4 for turns in found)
    assert all(sorted(itertools.chain(*turns)) == sorted(given) for turns in found)
    seen = {tuple(turn[tile][1] for turn in turns) for turns in found for tile in range(tiles)}
    assert seen == set(itertools.permutations(range(4)))
