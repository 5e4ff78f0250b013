"""kernels.config: every knob refuses negative and absurd values, and takes all that is shipped."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import pytest
import yaml

from kernels.config import knob_limits
from kernels.families import FAMILIES

SPACES = sorted((Path(__file__).resolve().parents[2] / "configs" / "spaces").glob("*.yaml"))
KNOBS = sorted(
    {
        field.name
        for family in FAMILIES.values()
        for field in fields(family.config_type)
        if get_type_hints(family.config_type)[field.name] is int
    }
)


@pytest.mark.parametrize("knob", KNOBS)
def test_a_knob_is_never_negative_nor_beyond_a_million(knob: str) -> None:
    least, most = knob_limits(knob)
    assert 0 <= least < most <= 1 << 20


@pytest.mark.parametrize("family", FAMILIES)
def test_defaults_are_within_the_limits(family: str) -> None:
    for knob, value in FAMILIES[family].config_type().to_dict().items():
        if isinstance(value, int):
            least, most = knob_limits(knob)
            assert least <= value <= most, knob


@pytest.mark.parametrize("path", SPACES, ids=lambda path: path.stem)
def test_shipped_spaces_are_within_the_limits(path: Path) -> None:
    for knob, values in (yaml.safe_load(path.read_text())["parameters"] or {}).items():
        least, most = knob_limits(knob)
        assert all(least <= value <= most for value in values if isinstance(value, int)), knob


@pytest.mark.parametrize("knob", ["BLOCK_M", "QUANT_BLOCK_K", "GROUP_M", "num_warps", "num_stages", "split_k"])
def test_what_counts_something_is_at_least_one(knob: str) -> None:
    assert knob_limits(knob)[0] == 1
