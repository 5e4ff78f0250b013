"""Defaults: legal for every shape on every device, and suited to the shape."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kernels.device import GFX950, DeviceKey
from kernels.families import FAMILIES
from kernels.families.defaults import default_choice, smallest_choice
from kernels.problem import GemmShape

DEVICES = st.sampled_from([GFX950, DeviceKey("gfx950", 128), DeviceKey("gfx942", 304), DeviceKey("sm_90", 132)])
SHAPES = st.builds(
    GemmShape,
    st.integers(1, 1 << 20),
    st.integers(1, 4096).map(lambda n: 64 * n),
    st.integers(1, 1024).map(lambda k: 64 * k),
)


@given(SHAPES, DEVICES)
def test_a_default_is_legal_and_of_its_family(shape: GemmShape, device: DeviceKey) -> None:
    for family, config in (default_choice(shape, device), smallest_choice(device)):
        assert type(config) is FAMILIES[family].config_type
        assert config.check(shape, device) is None


def test_the_family_follows_from_the_shape() -> None:
    chosen = [
        default_choice(GemmShape.parse(text), GFX950)[0] for text in ("4x2880x512", "16x2112x7168", "256x3072x1536")
    ]
    assert chosen == ["fused", "fused_splitk_workspace", "staged_triton"]


def test_a_split_gives_about_every_compute_unit_a_program() -> None:
    # 33 tiles of 64 columns on 256 compute units: 7 programs a tile.
    _, config = default_choice(GemmShape(16, 2112, 7168), GFX950)
    assert config.to_dict()["split_k"] == 7


def test_without_an_fp4_unit_the_software_quantiser_and_bf16_serve() -> None:
    _, config = default_choice(GemmShape(16, 2112, 7168), DeviceKey("sm_90", 132))
    assert (config.quantizer, config.a_operand) == ("software", "bf16")
