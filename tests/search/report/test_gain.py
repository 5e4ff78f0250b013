"""The one line about a model, with times and counts by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from result_rows import predicted, results

from kernels.device import GFX950
from kernels.families.defaults import default_choice
from kernels.families.fused import TileConfig
from kernels.problem import GemmShape
from search.report.gain import gains
from search.space.shapes import ShapeSet, load_shapes

MODEL = """
name: toy
M: 1..64
steps: {16: 3, 64: 1}
layers:
  - {name: qkv, N: 512, K: 256, calls: 10, source: by hand}
  - {name: o, N: 256, K: 512, calls: 10, source: by hand}
  - {name: head, N: 1024, K: 256, calls: 1, source: by hand}
"""


@pytest.fixture
def model(tmp_path: Path) -> ShapeSet:
    (tmp_path / "toy.yaml").write_text(MODEL)
    return load_shapes(tmp_path / "toy.yaml")


def pair(M: int, N: int, K: int, default_us: float, winner_us: float) -> list[dict[str, object]]:
    """The trial of the default of a shape, and a faster one."""
    family, config = default_choice(GemmShape(M, N, K), GFX950)
    shape = {"M": M, "N": N, "K": K, "study": f"{M}x{N}x{K}"}
    slow = predicted(default_us, **shape, family=family, **config.to_dict())
    fast = predicted(winner_us, **shape, trial=1, BLOCK_N=128, num_stages=1, num_warps=2)
    return [slow, fast]


def test_a_step_is_the_sum_over_layers_averaged_over_steps(model: ShapeSet) -> None:
    rows = [
        *pair(16, 512, 256, 8.0, 4.0), *pair(64, 512, 256, 12.0, 8.0),
        *pair(16, 256, 512, 6.0, 6.0), *pair(64, 256, 512, 10.0, 10.0),
    ]  # fmt: skip
    (gain,) = gains(results(*rows), [model])  # type: ignore[arg-type]
    # qkv: 10 * (3 * 8 + 12) / 4 = 90 before, 50 after; o: 10 * (3 * 6 + 10) / 4 = 70 both.
    assert (gain.before_us, gain.after_us) == (pytest.approx(160.0), pytest.approx(120.0))
    assert gain.line() == (
        "toy, tp 1: GEMMs of a step take 0.160 ms untuned, 0.120 ms tuned (-25.0 %; predicted, 2 of 3 layers)"
    )


def test_a_step_between_two_M_is_served_by_the_larger(model: ShapeSet) -> None:
    rows = [*pair(32, 512, 256, 8.0, 4.0), *pair(64, 512, 256, 8.0, 4.0), *pair(64, 256, 512, 6.0, 3.0)]
    (gain,) = gains(results(*rows), [model])  # type: ignore[arg-type]
    assert gain.after_us == pytest.approx(10 * 4.0 + 10 * 3.0)


def test_little_knowledge_says_nothing(model: ShapeSet) -> None:
    assert gains(results(*pair(16, 512, 256, 8.0, 4.0)), [model]) == []  # type: ignore[arg-type]
    assert gains(results(), [model]) == []


def test_rows_of_aiter_stand_between_the_default_and_the_winner(model: ShapeSet) -> None:
    theirs = ("fused", TileConfig(BLOCK_N=256))
    rows = [*pair(64, 512, 256, 8.0, 4.0), *pair(64, 256, 512, 6.0, 3.0)]
    rows.append(predicted(5.0, M=64, N=512, K=256, study="64x512x256", trial=2, BLOCK_N=256))
    (gain,) = gains(results(*rows), [model], published=lambda shape: [theirs])  # type: ignore[arg-type]
    # 10 calls each: 80 + 60 untuned; 50 where AITER's row was tried, 60 where it was not; 40 + 30 tuned.
    assert gain.line() == (
        "toy, tp 1: GEMMs of a step take 0.140 ms untuned, 0.110 ms with AITER's rows, 0.070 ms tuned "
        "(-50.0 % and -36.4 %; predicted, 2 of 3 layers)"
    )
