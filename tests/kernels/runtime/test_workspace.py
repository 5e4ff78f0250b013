"""Workspaces: placed apart, aligned, and bounded by computing some rows at a time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kernels.families import FAMILIES
from kernels.launches.program import Buffer, Program
from kernels.problem import GemmShape
from kernels.runtime.plan import layout, rows_of_a_part

BUFFERS = st.lists(st.tuples(st.sampled_from(["u8", "bf16", "fp32"]), st.integers(1, 3000)), max_size=5)


@given(BUFFERS)
def test_no_two_workspaces_overlap_and_each_is_aligned(kinds: list[tuple[str, int]]) -> None:
    buffers = tuple(Buffer(str(i), dtype, (extent,), "workspace") for i, (dtype, extent) in enumerate(kinds))
    placed = layout(buffers)
    owners: list[str | None] = [None] * placed.bytes
    for buffer in buffers:
        start = placed.offsets[buffer.name]
        assert start % 256 == 0
        assert owners[start : start + buffer.bytes] == [None] * buffer.bytes
        owners[start : start + buffer.bytes] = [buffer.name] * buffer.bytes


def test_workspaces_follow_one_another_in_steps_of_256_bytes() -> None:
    codes, scales = Buffer("codes", "u8", (3, 100), "workspace"), Buffer("scales", "u8", (256,), "workspace")
    assert layout((codes, scales)).offsets == {"codes": 0, "scales": 512}
    assert layout((codes, scales)).bytes == 768
    assert layout(()).bytes == 0


def _split(rows: int) -> Program:
    family = FAMILIES["fused_splitk_workspace"]
    return family.program(GemmShape(rows, 7168, 2048), family.config({"split_k": 16}))


def test_a_product_that_fits_is_not_divided() -> None:
    # 16 slices of 256 x 7168 fp32: 117,440,512 bytes
    assert rows_of_a_part(256, _split, limit_bytes=117_440_512) == 256
    assert rows_of_a_part(300, _split, limit_bytes=1 << 40) == 300


def test_a_product_that_does_not_fit_is_divided_at_multiples_of_the_scale_padding() -> None:
    # 32768 rows would take 15 GB; 512 MiB hold 1170 rows.
    assert rows_of_a_part(32768, _split, limit_bytes=512 << 20) == 1024
    assert rows_of_a_part(3000, _split, limit_bytes=512 << 20) == 768  # 3000 -> 1536 -> 768


@given(st.integers(1, 40000), st.integers(0, 1 << 31))
def test_a_part_keeps_the_limit_or_is_the_smallest(M: int, limit_bytes: int) -> None:
    rows = rows_of_a_part(M, _split, limit_bytes)
    assert 1 <= rows <= M
    assert rows == M or rows % 256 == 0
    assert rows <= 256 or layout(_split(rows).workspaces).bytes <= limit_bytes
