"""kernels.spelling: near names come first, and every known name is said."""

from __future__ import annotations

import pytest

from kernels.spelling import instead_of

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
