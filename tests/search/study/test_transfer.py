"""search.study.transfer: what is learnt from trials of other shapes."""

from __future__ import annotations

import numpy as np
import pandas as pd
from result_rows import failed, measured, results

from kernels.device import DeviceKey
from kernels.problem import GemmShape
from search.study.earlier import OtherShape, other_shapes
from search.study.features import PointSpace
from search.study.surrogate import SurrogateSearch
from search.study.transfer import expected_by

SHAPE = GemmShape(16, 512, 4096)
WIDER = GemmShape(32, 512, 4096)


def tiles() -> pd.DataFrame:
    axes = np.meshgrid([16, 32, 64, 128], [16, 32, 64, 128], [1, 2, 4, 8], indexing="ij")
    return pd.DataFrame({n: a.ravel() for n, a in zip(("BLOCK_M", "BLOCK_N", "num_warps"), axes, strict=True)})


def times(frame: pd.DataFrame) -> np.ndarray:
    """Microseconds, best at 32 x 64 with 4 warps."""
    best = {"BLOCK_M": 32, "BLOCK_N": 64, "num_warps": 4}
    return 5.0 + sum(np.log2(frame[name] / value).to_numpy() ** 2 for name, value in best.items())


def expected() -> np.ndarray:
    sampled = tiles().sample(30, random_state=0).reset_index(drop=True)
    other = OtherShape(WIDER, {"fused": sampled}, times(sampled))
    return expected_by([other], {"fused": tiles()}, SHAPE, 256, None)


def test_expects_of_a_shape_what_its_neighbour_took() -> None:
    ranks = pd.Series(expected()).corr(pd.Series(times(tiles())), method="spearman")
    assert ranks > 0.8


def test_a_search_begins_with_what_is_expected_most_of() -> None:
    search = SurrogateSearch(PointSpace({"fused": tiles()}, shape=SHAPE, cu_count=256, expected=expected()), seed=0)
    assert times(tiles())[search.propose()] <= np.quantile(times(tiles()), 0.1)


def test_only_trials_of_the_same_device_and_judge_count() -> None:
    def trials(study: str, **changes: object) -> list[dict[str, object]]:
        name = f"gfx950-256cu/x/{study}/triton/hash"
        return [measured(9.0 + i, M=32, study=name, num_warps=2 ** (i % 4), **changes) for i in range(8)]

    device = DeviceKey("gfx950", 256)
    assert [one.shape for one in other_shapes(results(*trials("cold")), SHAPE, device, "cold")] == [
        GemmShape(32, 2112, 7168)
    ]
    assert other_shapes(results(*trials("warm")), SHAPE, device, "cold") == []
    assert other_shapes(results(*trials("cold", cu_count=304)), SHAPE, device, "cold") == []
    assert other_shapes(results(*trials("cold")), GemmShape(32, 2112, 7168), device, "cold") == []  # its own
    few = results(*trials("cold")[:7], failed("crashed", M=32))
    assert other_shapes(few, SHAPE, device, "cold") == []


def test_times_belong_to_their_configurations() -> None:
    study = "gfx950-256cu/x/cold/triton/hash"
    rows = [measured(float(2**i), M=32, study=study, num_warps=2 ** (i % 4), GROUP_M=2 ** (i // 4)) for i in range(8)]
    (other,) = other_shapes(results(*rows), SHAPE, DeviceKey("gfx950", 256), "cold")
    frame = other.frames["fused"]
    exponents = np.log2(frame["num_warps"]) + 4 * np.log2(frame["GROUP_M"])
    np.testing.assert_allclose(other.times, 2.0**exponents)
