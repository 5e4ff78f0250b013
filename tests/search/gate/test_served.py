"""search.gate.served: what is right at its own M and on contiguous rows may be wrong where its row serves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from compiled_programs import compiled, simulated_families, skip_unless_here

from kernels.device import GFX950
from kernels.errors import WrongResultError
from kernels.families import FAMILIES
from kernels.launches.program import Program
from kernels.problem import GemmShape
from search.evaluation import Candidate, ServedCandidate
from search.gate.served import Compile, Serving, check_served, served_M, servings, ways
from search.gfx950.code.calls import CompiledCall

SHAPE = GemmShape(32, 64, 512)  # both tile rows of 16 are full


def candidate(family: str, lowest_M: int = 17) -> ServedCandidate:
    config = FAMILIES[family].config({})
    if config.check(SHAPE, GFX950) is not None:  # AITER's tiles of less than 32 rows are for less than 32 rows
        config = FAMILIES[family].config({"BLOCK_M": 32})
    return ServedCandidate(SHAPE, family, config, lowest_M, SHAPE.M)


def test_a_row_is_used_at_its_least_m_below_its_m_above_it_and_with_strided_rows() -> None:
    apart = (Serving(64, 592), Serving(64, 593))  # at multiples of 16 elements, and at any
    assert servings(GemmShape(64, 64, 512), 33, 96) == (Serving(33), Serving(63), Serving(96), *apart)
    assert servings(GemmShape(64, 64, 512), 64, 64) == apart
    assert servings(GemmShape(1, 64, 512), 1, 1) == (Serving(1, 592), Serving(1, 593))


def test_only_a_served_candidate_is_used_otherwise_than_at_its_own_shape() -> None:
    own = Candidate(SHAPE, "fused", FAMILIES["fused"].config({}))
    assert list(ways(own, GFX950)) == []
    assert list(ways(candidate("fused"), GFX950)) == [Serving(17), Serving(31), Serving(32, 592), Serving(32, 593)]
    assert (served_M(own), served_M(candidate("fused"))) == ((32, 32), (17, 32))


@pytest.mark.parametrize("family", simulated_families())
def test_a_right_configuration_is_right_wherever_it_serves(family: str) -> None:
    skip_unless_here(family)
    check_served(candidate(family), compiled)


def with_argument(name: str, value: int) -> Compile:
    """A compiler that fixes one run-time argument of the GEMM, as a kernel that ignores it would."""

    def compile_changed(program: Program) -> list[CompiledCall]:
        return [
            replace(one, call=replace(one.call, args={**one.call.args, name: value})) if name in one.call.args else one
            for one in compiled(program)
        ]

    return compile_changed


def test_a_kernel_that_takes_m_to_be_whole_tiles_is_caught_below_its_m() -> None:
    with pytest.raises(WrongResultError, match=r"^at M = 17: "):
        check_served(candidate("fused"), with_argument("M", 32))


def test_a_kernel_that_ignores_the_stride_of_a_is_caught() -> None:
    with pytest.raises(WrongResultError, match=r"^with rows of A 592 elements apart: "):
        check_served(candidate("fused"), with_argument("stride_am", 512))
