"""search.space.legal_set against a brute-force product, and the shipped spaces at many shapes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.device import GFX950, DeviceKey
from kernels.errors import InputError
from kernels.families import FAMILIES
from kernels.families.aiter import AiterConfig
from kernels.families.fused import SplitKAtomicConfig, TileConfig
from kernels.problem import GemmShape
from search.space.legal_set import LegalSet, legal_set, legal_sets
from search.space.shapes import load_shapes
from search.space.space import SearchSpace, load_space, load_spaces
from search.study.points import Points

CONFIGS = Path(__file__).resolve().parents[3] / "configs"
H100 = DeviceKey("sm_90", 132)
MI350P = DeviceKey("gfx950", 128)
SHAPE = GemmShape(40, 2112, 448)
SMALL = """\
family: fused_splitk_atomic
parameters:
  cache_modifier: [.cg, ""]
  BLOCK_M: [8, 16, 24, 64, 256]
  num_warps: [1, 4, 8]
  quantizer: [software, hardware]
  BLOCK_N: [16, 256]
  split_k: [1, 2, 7]
constraints:
  - "(split_k - 1) * cdiv(cdiv(K, BLOCK_K), split_k) < cdiv(K, BLOCK_K)"
  - "num_warps > 1 or BLOCK_M <= M"
  - "N > 0"
defaults:
  - {cache_modifier: .cg, BLOCK_M: 24, num_warps: 4, BLOCK_N: 16, split_k: 2, quantizer: software}
  - {cache_modifier: "", BLOCK_M: 64, num_warps: 4, BLOCK_N: 16, split_k: 2, quantizer: software}
"""


def raw_points(legal: LegalSet) -> int:
    """Points of the full product of the space's lists."""
    return math.prod(map(len, legal.space.parameters.values()))


def written(tmp_path: Path, text: str) -> SearchSpace:
    path = tmp_path / "space.yaml"
    path.write_text(text)
    return load_space(path)


def small_constraints(c: SplitKAtomicConfig) -> bool:
    steps = -(-SHAPE.K // c.BLOCK_K)
    share = -(-steps // c.split_k)
    return (c.split_k - 1) * share < steps and (c.num_warps > 1 or c.BLOCK_M <= SHAPE.M)


def brute_force(
    space: SearchSpace, shape: GemmShape, device: DeviceKey, constraints: Callable[[SplitKAtomicConfig], bool]
) -> list[TileConfig]:
    product = (
        SplitKAtomicConfig(**dict(zip(space.parameters, values, strict=True)))  # type: ignore[arg-type]
        for values in itertools.product(*space.parameters.values())
    )
    return [config for config in product if constraints(config) and config.check(shape, device) is None]


@pytest.mark.parametrize("device", [GFX950, H100], ids=str)
def test_the_set_is_the_filtered_product_in_the_order_of_the_lists(tmp_path: Path, device: DeviceKey) -> None:
    space = written(tmp_path, SMALL)
    legal = legal_set(space, SHAPE, device)
    expected = brute_force(space, SHAPE, device, small_constraints)
    assert 0 < len(expected) < raw_points(legal) == 2 * 5 * 3 * 2 * 2 * 3
    assert [legal.config(i) for i in range(len(legal))] == expected


def test_the_frame_has_each_field_of_each_point(tmp_path: Path) -> None:
    legal = legal_set(written(tmp_path, SMALL), SHAPE, GFX950)
    rows = [{name: value for name, value in row.items()} for row in legal.frame.to_dict("records")]
    assert rows == [legal.config(i).to_dict() for i in range(len(legal))]
    assert legal.frame["BLOCK_M"].dtype == np.int32


def test_index_of_inverts_config_and_knows_what_is_not_there(tmp_path: Path) -> None:
    legal = legal_set(written(tmp_path, SMALL), SHAPE, GFX950)
    assert [legal.index_of(legal.config(i)) for i in range(len(legal))] == list(range(len(legal)))
    here = dict(legal.config(0).to_dict())
    for change in ({"BLOCK_M": 24}, {"BLOCK_M": 32}, {"BLOCK_K": 512}, {"split_k": 7}):
        assert legal.index_of(SplitKAtomicConfig(**{**here, **change})) is None  # type: ignore[arg-type]
    assert legal.index_of(TileConfig()) is None  # another family's


def test_an_index_beyond_the_set_is_an_error(tmp_path: Path) -> None:
    legal = legal_set(written(tmp_path, SMALL), SHAPE, GFX950)
    with pytest.raises(IndexError):
        legal.config(len(legal))


def test_defaults_are_those_that_are_legal_here(tmp_path: Path) -> None:
    space = written(tmp_path, SMALL)
    assert legal_set(space, SHAPE, GFX950).defaults == space.defaults[1:]  # BLOCK_M = 24 is no power of two


@settings(max_examples=40, deadline=None)
@given(
    st.permutations(["cache_modifier", "BLOCK_M", "num_warps", "quantizer", "BLOCK_N", "split_k"]),
    st.sampled_from([1, 17, 40, 4096]),
)
def test_the_order_of_the_knobs_does_not_change_the_set(
    tmp_path_factory: pytest.TempPathFactory, order: list[str], M: int
) -> None:
    shape = GemmShape(M, 2112, 448)
    lines = {line.split(":")[0].strip(): line for line in SMALL.splitlines()[2:8]}
    text = "\n".join(["family: fused_splitk_atomic", "parameters:", *(lines[name] for name in order)])
    text += "\n" + "\n".join(SMALL.splitlines()[8:12])
    folder = tmp_path_factory.mktemp("spaces")
    one, other = (legal_set(written(folder, t), shape, GFX950) for t in (SMALL, text))
    assert {one.config(i) for i in range(len(one))} == {other.config(i) for i in range(len(other))}
    assert len(one) == len(other)


@pytest.mark.parametrize(
    ("constraint", "problem"),
    [
        (
            "BLOCK_M > 4096",
            ":5: no point of fused at 40x2112x448 on gfx950-256cu is legal: constraint 'BLOCK_M > 4096' ",
        ),
        (
            "M > 40",
            ":5: no point of fused at 40x2112x448 on gfx950-256cu is legal: constraint 'M > 40' removes the last 1",
        ),
        (
            "BLOCK_M == 24",
            "BLOCK_M=24 is not a power of two and a multiple of 1; this rule removes the last 1; add values",
        ),
    ],
)
def test_a_space_without_a_legal_point_names_the_last_condition(tmp_path: Path, constraint: str, problem: str) -> None:
    text = f'family: fused\nparameters:\n  BLOCK_M: [16, 24]\nconstraints:\n  - "{constraint}"\n'
    with pytest.raises(InputError) as caught:
        legal_set(written(tmp_path, text), SHAPE, GFX950)
    assert str(caught.value).startswith(str(tmp_path / "space.yaml"))
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_space_that_only_another_device_can_run_says_so(tmp_path: Path) -> None:
    space = written(tmp_path, "family: fused\nparameters: {BLOCK_M: [16], quantizer: [hardware]}\n")
    assert len(legal_set(space, SHAPE, GFX950)) == 1
    with pytest.raises(InputError, match="on sm_90-132cu is legal: quantizer=hardware needs the FP4 conversion"):
        legal_set(space, SHAPE, H100)


def test_too_many_points_are_refused_before_memory_is_used(tmp_path: Path) -> None:
    most = {"GROUP_M": 127, "split_k": 127, "num_xcds": 64, "num_stages": 32}  # 33 million points, all within limits
    lists = "\n".join(f"  {name}: {list(range(1, count + 1))}" for name, count in most.items())
    text = f"family: fused_splitk_atomic\nparameters:\n{lists}"
    with pytest.raises(InputError, match="more than 2000000 points up to num_stages; shorten its list"):
        legal_set(written(tmp_path, text), SHAPE, GFX950)


@pytest.fixture(scope="module")
def shipped() -> dict[str, SearchSpace]:
    return load_spaces(CONFIGS / "spaces")


def able(spaces: dict[str, SearchSpace], shape: GemmShape, device: DeviceKey) -> list[SearchSpace]:
    """Spaces whose family has kernels for the device and the shape."""
    triton = {"aiter_triton_a4w4", "aiter_triton_a16w4"}
    foreign = {"staged_hip", "staged_ck", "aiter", *triton} if device.arch != "gfx950" else set()
    if shape.K % 256:  # AITER's kernels take no tail of K
        foreign = {*foreign, "staged_ck", *triton}
    if shape.N * shape.K // 2 >= 1 << 31:  # its Triton kernels no weight beyond 32 bits
        foreign = {*foreign, *triton}
    return [space for name, space in spaces.items() if name not in foreign]


COMPETITION = load_shapes(CONFIGS / "shapes" / "gpumode.yaml").shapes
ODD = [GemmShape(1, 64, 64), GemmShape(1, 64, 28672), GemmShape(8192, 128256, 8192), GemmShape(32800, 64, 192)]


@pytest.mark.parametrize("device", [GFX950, MI350P, H100], ids=str)
@pytest.mark.parametrize("shape", [*COMPETITION, *ODD], ids=str)
def test_shipped_spaces_have_legal_points(shipped: dict[str, SearchSpace], shape: GemmShape, device: DeviceKey) -> None:
    found, refusals = legal_sets(able(shipped, shape, device), shape, device)
    assert not refusals
    for family, legal in found.items():
        assert 0 < len(legal) < 600_000
        for i in np.linspace(0, len(legal) - 1, 50, dtype=int):
            config = legal.config(int(i))
            assert isinstance(config, FAMILIES[family].config_type)
            assert config.check(shape, device) is None
            assert legal.index_of(config) == i


@pytest.mark.parametrize("shape", COMPETITION, ids=str)
@pytest.mark.parametrize("family", ["staged_hip", "staged_ck", "aiter"])
def test_native_families_have_a_start_at_the_competition_shapes(
    shipped: dict[str, SearchSpace], family: str, shape: GemmShape
) -> None:
    assert legal_set(shipped[family], shape, GFX950).defaults


def test_a_family_that_no_space_can_help_says_what_it_lacks(shipped: dict[str, SearchSpace]) -> None:
    with pytest.raises(InputError, match=r"K is no multiple of 256[^;]*; choose another family$"):
        legal_set(shipped["staged_ck"], GemmShape(16, 64, 320), GFX950)
    with pytest.raises(InputError, match="on sm_90-132cu is legal: these kernels are gfx950 machine code"):
        legal_set(shipped["aiter"], SHAPE, H100)


def test_a_family_without_knobs_has_one_point(shipped: dict[str, SearchSpace]) -> None:
    legal = legal_set(shipped["aiter"], SHAPE, GFX950)
    assert (len(legal), legal.frame.shape, raw_points(legal)) == (1, (1, 0), 1)
    assert legal.index_of(legal.config(0)) == 0
    points = Points({"aiter": legal}, seed=0)
    assert points.nearest("aiter", {}) == points.first() == ("aiter", AiterConfig())
    points.mark(*points.first())
    assert points.untried == 0


@pytest.mark.parametrize("family", ["fused", "staged_triton"])
@pytest.mark.parametrize("device", [GFX950, H100], ids=str)
@pytest.mark.parametrize("shape", [*COMPETITION, *ODD[:3]], ids=str)
def test_shipped_spaces_without_a_split_have_a_start_everywhere(
    shipped: dict[str, SearchSpace], family: str, device: DeviceKey, shape: GemmShape
) -> None:
    assert legal_set(shipped[family], shape, device).defaults


def test_every_shipped_default_is_legal_somewhere(shipped: dict[str, SearchSpace]) -> None:
    layers = (2112, 7168), (4096, 64), (4096, 7168), (57344, 8192)
    shapes = [GemmShape(M, N, K) for M in (1, 8, 16, 32, 64, 1024, 8192) for N, K in layers]
    for space in shipped.values():
        found = {
            default
            for shape in [*COMPETITION, *shapes, GemmShape(96, 4608, 3584)]  # the last has a row of an H200
            for device in (GFX950, H100)
            if space in able(shipped, shape, device)
            for default in legal_set(space, shape, device).defaults
        }
        assert found == set(space.defaults)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 8192) | st.sampled_from([1, 2, 16, 32]),
    st.integers(1, 3142).map(lambda n: 64 * n),
    st.integers(1, 448).map(lambda k: 64 * k),
    st.sampled_from([GFX950, MI350P, H100, DeviceKey("gfx942", 304)]),
)
def test_shipped_spaces_have_legal_points_at_any_shape(M: int, N: int, K: int, device: DeviceKey) -> None:
    shape = GemmShape(M, N, K)
    found, refusals = legal_sets(able(load_spaces(CONFIGS / "spaces"), shape, device), shape, device)
    # AITER's GEMMs read whole tiles of the weight, the packed one in whole steps; a large problem has wide tiles only.
    whole = ("leaves a tail", "whole steps of BLOCK_K")
    assert all("aiter_triton_a" in refusal and any(part in refusal for part in whole) for refusal in refusals)
    assert all(map(len, found.values()))


@pytest.mark.parametrize(
    ("shape", "device"),
    [
        (GemmShape(512, 512, 7168), GFX950),
        (GemmShape(2048, 512, 7168), GFX950),
        (GemmShape(512, 7168, 16384), GFX950),
        (GemmShape(300, 512, 7168), DeviceKey("gfx942", 304)),
    ],
    ids=str,
)
def test_where_staged_triton_has_most_points_they_can_be_held(
    shipped: dict[str, SearchSpace], shape: GemmShape, device: DeviceKey
) -> None:
    assert len(legal_set(shipped["staged_triton"], shape, device)) > 400_000


@pytest.mark.parametrize(("cu_count", "remaps"), [(32, {1}), (64, {1, 8}), (128, {1, 8}), (256, {1, 8})])
@pytest.mark.parametrize("family", ["fused", "staged_triton", "staged_hip"])
def test_a_partition_of_one_die_searches_no_remap(
    shipped: dict[str, SearchSpace], family: str, cu_count: int, remaps: set[int]
) -> None:
    found = legal_set(shipped[family], GemmShape(256, 2112, 7168), DeviceKey("gfx950", cu_count))
    assert set(found.frame["num_xcds"]) == remaps
