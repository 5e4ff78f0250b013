"""The next shape is compiled before the finals of this one, by way of benchmarks/overlapping_shapes.py."""

from __future__ import annotations

import pytest
from overlapping_shapes import Seconds, Stage, idle_share, run

from kernels.problem import GemmShape

FIRST, SECOND = GemmShape(16, 512, 1024), GemmShape(16, 1024, 1024)
SECONDS = Seconds(compile_s=0.1, measure_s=0.02, finals_s=3.0)


@pytest.mark.parametrize("ahead", [False, True])
def test_the_next_shape_is_compiled_while_the_finals_run_where_the_evaluator_can(ahead: bool) -> None:
    stages = run((FIRST, SECOND), 6, SECONDS, 2, "random", ahead=ahead)
    (finals,) = [stage for stage in stages if (stage.name, stage.shape) == ("finals", FIRST)]
    compiled = [stage.begin_s for stage in stages if (stage.name, stage.shape) == ("compile", SECOND)]
    assert len(compiled) == 6
    assert (min(compiled) < finals.end_s) == ahead
    assert [stage.name for stage in stages].count("measure") == 12  # nothing is lost, nothing done twice


def test_idle_is_what_is_between_the_gpu_s_first_and_last_work() -> None:
    work = [Stage("compile", FIRST, 0, 5), Stage("measure", FIRST, 5, 6), Stage("finals", FIRST, 8, 9)]
    assert idle_share(work) == 0.5


def test_three_shapes_are_searched_at_once_and_a_fourth_waits() -> None:
    shapes = [GemmShape(16, 512 * number, 1024) for number in range(1, 5)]
    slow = Seconds(compile_s=2.0, measure_s=0.02, finals_s=0.1)  # long beside what starting a search takes
    stages = run(shapes, 12, slow, 40, "auto", ahead=True)
    begins = {shape: min(one.begin_s for one in stages if one.shape == shape) for shape in shapes}
    ends = {
        shape: max(one.begin_s for one in stages if (one.name, one.shape) == ("compile", shape)) for shape in shapes
    }
    *three, fourth = sorted(shapes, key=lambda shape: begins[shape])
    assert max(begins[shape] for shape in three) < min(ends[shape] for shape in three) <= begins[fourth]
