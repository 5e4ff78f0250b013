"""kernels.wording: near names come first, all are said where they are few; one thing has no plural s."""

from __future__ import annotations

import pytest

from kernels.wording import counted, instead_of

FAMILIES = ("fused", "fused_splitk_atomic", "staged_triton")


@pytest.mark.parametrize(
    ("name", "known", "cure"),
    [
        ("fuesd", FAMILIES, "did you mean 'fused'? use one of fused, fused_splitk_atomic, staged_triton"),
        ("block_m", ("BLOCK_M", "BLOCK_N"), "did you mean 'BLOCK_M'? use one of BLOCK_M, BLOCK_N"),
        ("warp", FAMILIES, "use one of fused, fused_splitk_atomic, staged_triton"),
        ("", FAMILIES, "use one of fused, fused_splitk_atomic, staged_triton"),
        ("ca", ("", ".cg"), "use one of '', .cg"),
        ("x", (), "use one of "),
    ],
)
def test_cure_names_what_is_near_and_everything_known(name: str, known: tuple[str, ...], cure: str) -> None:
    assert instead_of(name, known) == cure


def test_several_near_names_are_all_said() -> None:
    assert instead_of("time", ("time_us", "times", "K")).startswith("did you mean 'times' or 'time_us'? ")


def test_of_many_names_only_the_nearest_are_said() -> None:
    many = [f"column_{i}" for i in range(90)] + ["vgprs", "sgprs"]
    assert instead_of("VGPRS", many) == "did you mean 'vgprs'?"
    assert instead_of("gprs", many) in ("did you mean 'vgprs' or 'sgprs'?", "did you mean 'sgprs' or 'vgprs'?")


def test_of_many_names_none_is_guessed_where_none_is_like_it() -> None:
    many = [f"column_{i}" for i in range(90)] + ["vgprs", "sgprs"]
    assert instead_of("zz", many) == "none of the 92 known names is like it"
    assert instead_of("zz", many, "the manual lists them").endswith(" is like it; the manual lists them")
    assert instead_of("VGPRS", many, "the manual lists them") == "did you mean 'vgprs'?"


@pytest.mark.parametrize(("number", "text"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows")])
def test_one_thing_has_no_plural_s(number: int, text: str) -> None:
    assert counted(number, "row") == text
