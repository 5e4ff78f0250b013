"""Vector compares: relations, NaN, signs, masks."""

from __future__ import annotations

import pytest
from snippets import LANE, run

NAN = float("nan")


@pytest.mark.parametrize(
    ("name", "x", "y", "holds"),
    [
        ("lt_f32", 1.0, 2.0, True),
        ("lt_f32", NAN, 2.0, False),
        ("nlt_f32", NAN, 2.0, True),
        ("nge_f32", NAN, 2.0, True),
        ("nge_f32", 2.0, 2.0, False),
        ("lg_f32", NAN, 2.0, False),
        ("neq_f32", NAN, NAN, True),
        ("eq_f32", 0.0, -0.0, True),
        ("o_f32", 1.0, NAN, False),
        ("u_f32", 1.0, NAN, True),
        ("gt_i32", 0xFFFFFFFF, 0, False),
        ("gt_u32", 0xFFFFFFFF, 0, True),
        ("eq_u16", 0xABCD0005, 0x12340005, True),  # high halves are not read
        ("lt_i16", 0x0000FFFF, 0x00000001, True),
        ("ne_u32", 3, 3, False),
    ],
)
def test_relation(name: str, x: float, y: float, holds: bool) -> None:
    state = run(f"v_cmp_{name}_e32 vcc, v0, v1", {"v0": x, "v1": y})
    assert state.pair("vcc") == (0xFFFFFFFFFFFFFFFF if holds else 0)


def test_a_compare_writes_one_bit_a_lane() -> None:
    state = run("v_cmp_gt_i32_e64 s[4:5], s0, v0", {"s0": 3, "v0": LANE})
    assert state.pair("s[4:5]") == 0b111


def test_inactive_lanes_give_zero() -> None:
    state = run("v_cmp_eq_u32_e32 vcc, 0, v0", {"v0": 0}, exec_mask=0xF0)
    assert state.pair("vcc") == 0xF0


def test_cmpx_narrows_exec() -> None:
    state = run("v_cmpx_lt_u32_e32 vcc, 61, v0\nv_mov_b32_e32 v1, 9", {"v0": LANE, "v1": 0})
    assert state.pair("exec") == 3 << 62
    assert state.u("v1")[60:].tolist() == [0, 0, 9, 9]


@pytest.mark.parametrize(
    ("bits", "mask"),
    [(0x7F800001, 1), (0x7FC00000, 2), (0xFF800000, 4), (0xBF800000, 8), (0x80000001, 16), (0x80000000, 32),
     (0x00000000, 64), (0x00000001, 128), (0x3F800000, 256), (0x7F800000, 512)],
)  # fmt: skip
def test_float_classes(bits: int, mask: int) -> None:
    text = "v_cmp_class_f32_e32 vcc, v0, v1\nv_cmp_class_f32_e64 s[0:1], v0, v2"
    state = run(text, {"v0": bits, "v1": mask, "v2": 1023 ^ mask})
    assert state.pair("vcc") == 0xFFFFFFFFFFFFFFFF
    assert state.pair("s[0:1]") == 0
