"""kernels.config: every knob refuses negative and absurd values, and takes all that is shipped."""

from __future__ import annotations

from pathlib import Path
from typing import get_type_hints

import pytest

from kernels.families import FAMILIES
from kernels.families.family import Family
from kernels.families.staged_triton import StagedConfig
from search.space.space import load_space

SPACES = Path(__file__).resolve().parents[2] / "configs" / "spaces"
KNOBS = [
    (family, name)
    for family in FAMILIES.values()
    for name, hint in get_type_hints(family.config_type).items()
    if hint is int
]


@pytest.mark.parametrize("family, knob", KNOBS, ids=lambda value: getattr(value, "name", value))
def test_a_knob_has_a_meaning_and_is_never_negative_nor_beyond_a_million(family: Family, knob: str) -> None:
    least, most = family.config_type.limits(knob)
    assert 0 <= least <= getattr(family.config_type(), knob) <= most <= 1 << 20
    assert family.config_type.__dataclass_fields__[knob].metadata["meaning"]


@pytest.mark.parametrize("family", FAMILIES)
def test_shipped_spaces_are_within_the_limits(family: str) -> None:
    space = load_space(SPACES / f"{family}.yaml")
    for knob, values in space.parameters.items():
        numbers = [value for value in values if isinstance(value, int)]
        least, most = space.config_type.limits(knob)
        assert all(least <= value <= most for value in numbers), knob


@pytest.mark.parametrize("knob", ["BLOCK_M", "QUANT_BLOCK_K", "GROUP_M", "num_warps", "num_stages", "split_k"])
def test_what_counts_something_is_at_least_one(knob: str) -> None:
    assert StagedConfig.limits(knob)[0] == 1
