"""Atomics: every lane counts, also where lanes share an address."""

from __future__ import annotations

import numpy as np
import pytest
from snippets import LANE, run

from search.gfx950.simulator import SimulatedBuffer

RESOURCE = {"s2": 0x7FFFFFFE, "s3": 0x27000}


def test_float_sums_of_lanes_that_share_an_address() -> None:
    out = np.array([100.0, 200.0], np.float32)
    text = "buffer_atomic_add_f32 v1, v0, s[0:3], 0 offen"
    run(
        text,
        {"s[0:1]": "x", **RESOURCE, "v0": (LANE % 2) * 4, "v1": LANE.astype(np.float32)},
        buffers={"x": out},
        waves=2,
    )
    assert out.tolist() == [100.0 + 2 * 992, 200.0 + 2 * 1024]  # even lanes sum to 992, odd lanes to 1024


def test_returned_value_is_the_one_before_the_lanes_turn() -> None:
    out = np.array([10], np.uint32)
    text = "global_atomic_add v3, v0, v1, s[0:1] sc0\ns_waitcnt vmcnt(0)"
    state = run(text, {"s[0:1]": "x", "v0": 0, "v1": 2}, buffers={"x": out})
    assert np.array_equal(state.u("v3"), 10 + 2 * LANE)
    assert out[0] == 10 + 128


def test_packed_bf16_sum_rounds_each_half() -> None:
    out = np.array([0x3F803F80], np.uint32)  # {1, 1}
    text = "buffer_atomic_pk_add_bf16 v1, v0, s[0:3], 0 offen"
    run(text, {"s[0:1]": "x", **RESOURCE, "v0": 0, "v1": 0x40003B80}, buffers={"x": out}, exec_mask=1)  # {2, 2^-8}
    assert hex(out[0]) == hex(0x40403F80)  # 3; 1 + 2^-8 is a tie that goes to even


def test_signed_and_unsigned_extremes() -> None:
    out = np.array([5, 5], np.uint32)
    text = "global_atomic_smin v0, v1, s[0:1]\nglobal_atomic_umin v0, v1, s[0:1] offset:4"
    run(text, {"s[0:1]": "x", "v0": 0, "v1": 0xFFFFFFFF}, buffers={"x": out}, exec_mask=1)
    assert out.tolist() == [0xFFFFFFFF, 5]


def test_adding_to_memory_that_nobody_zeroed_is_found() -> None:
    buffer = SimulatedBuffer(np.zeros(64, np.float32), initialised=False)
    state = run(
        "global_atomic_add_f32 v0, v1, s[0:1]", {"s[0:1]": "x", "v0": LANE * 4, "v1": 1.0}, buffers={"x": buffer}
    )
    assert state.kinds() == {"uninitialised_atomic"}


def test_adding_to_an_operand_is_found_and_changes_nothing() -> None:
    out = np.zeros(64, np.float32)
    registers = {"s[0:1]": "x", "v0": LANE * 4, "v1": 1.0}
    state = run("global_atomic_add_f32 v0, v1, s[0:1]", registers, buffers={"x": SimulatedBuffer(out, writable=False)})
    assert state.kinds() == {"read_only_store"} and not out.any()


def test_out_of_range_lanes_add_nothing() -> None:
    out = np.zeros(64, np.float32)
    text = "buffer_atomic_add_f32 v1, v0, s[0:3], 0 offen"
    run(text, {"s[0:1]": "x", "s2": 8, "s3": 0x27000, "v0": LANE * 4, "v1": 1.0}, buffers={"x": out})
    assert out.sum() == 2.0


@pytest.mark.parametrize(
    ("name", "before", "value", "after"),
    [
        ("inc", 6, 7, 7), ("inc", 7, 7, 0), ("dec", 6, 7, 5), ("dec", 0, 7, 7), ("dec", 8, 7, 7),
        ("cmpswap", 5, (9, 5), 9), ("cmpswap", 5, (9, 6), 5),
    ],
)  # fmt: skip
def test_counting_and_exchange(name: str, before: int, value: int | tuple[int, int], after: int) -> None:
    out = np.array([before], np.uint32)
    first, second = value if isinstance(value, tuple) else (value, 0)
    data = "v[2:3]" if isinstance(value, tuple) else "v2"
    text = f"global_atomic_{name} v4, v0, {data}, s[0:1] sc0\ns_waitcnt vmcnt(0)"
    state = run(text, {"s[0:1]": "x", "v0": 0, "v2": first, "v3": second}, buffers={"x": out}, exec_mask=1)
    assert (out[0], state.u("v4")[0]) == (after, before)


@pytest.mark.parametrize(
    ("name", "before", "value", "after"),
    [
        ("add_x2", 0xFFFFFFFF, 1, 1 << 32), ("sub_x2", 1 << 32, 1, 0xFFFFFFFF), ("umax_x2", 5, 2**64 - 1, 2**64 - 1),
        ("smax_x2", 5, 2**64 - 1, 5), ("smin_x2", 5, 2**64 - 1, 2**64 - 1), ("and_x2", 0xF << 32, 1 << 33, 1 << 33),
        ("inc_x2", 1 << 33, 1 << 33, 0),
    ],
)  # fmt: skip
def test_updates_of_64_bits(name: str, before: int, value: int, after: int) -> None:
    out = np.array([before], np.uint64)
    registers = {"s[0:1]": "x", "v0": 0, "v2": value & 0xFFFFFFFF, "v3": value >> 32}
    run(f"global_atomic_{name} v0, v[2:3], s[0:1]", registers, buffers={"x": out}, exec_mask=1)
    assert out[0] == after


def test_doubles_have_a_smallest_and_a_largest() -> None:
    out = np.array([1.5, 1.5])
    minus_two = int(np.float64(-2.0).view(np.uint64))
    text = "global_atomic_min_f64 v0, v[2:3], s[0:1]\nglobal_atomic_max_f64 v0, v[2:3], s[0:1] offset:8"
    run(text, {"s[0:1]": "x", "v0": 0, "v2": 0, "v3": minus_two >> 32}, buffers={"x": out}, exec_mask=1)
    assert out.tolist() == [-2.0, 1.5]


@pytest.mark.parametrize(
    ("name", "value", "after"),
    [("max_f32", 2.5, 2.5), ("min_f32", 2.5, 1.0), ("inc_u32", 0xFFFFFFFF, 0x3F800001), ("rsub_u32", 0x3F800003, 3)],
)
def test_updates_of_lds(name: str, value: float, after: float) -> None:
    text = f"ds_write_b32 v0, v1\ns_waitcnt lgkmcnt(0)\nds_{name} v0, v2\ns_waitcnt lgkmcnt(0)\nds_read_b32 v3, v0"
    state = run(text, {"v0": LANE * 4, "v1": np.ones(64, np.float32), "v2": np.full(64, value)
                       if isinstance(value, float) else value})  # fmt: skip
    row = state.f("v3") if isinstance(after, float) else state.u("v3")
    assert set(row.tolist()) == {after}


MINUS_ONE = 2**64 - 1
TWO, MINUS_TWO_AND_A_HALF = (int(np.float64(value).view(np.uint64)) for value in (2.0, -2.5))


@pytest.mark.parametrize(
    ("name", "old", "value", "new"),
    [
        ("add_u64", 0xFFFFFFFF, 1, 0x1_0000_0000),  # the carry passes into the high register
        ("sub_u64", 0, 1, MINUS_ONE),
        ("rsub_u64", 3, 10, 7),
        ("and_b64", 0xF0_0000_000F, 0x30_0000_0003, 0x30_0000_0003),
        ("or_b64", 1 << 40, 2, 1 << 40 | 2),
        ("xor_b64", 1 << 40 | 3, 1 << 40, 3),
        ("min_i64", 5, MINUS_ONE, MINUS_ONE),
        ("max_i64", 5, MINUS_ONE, 5),
        ("min_u64", 5, MINUS_ONE, 5),
        ("max_u64", 5, MINUS_ONE, MINUS_ONE),
        ("inc_u64", 7, 7, 0),  # back to 0 from the value on
        ("dec_u64", 0, 1 << 33, 1 << 33),
        ("add_f64", TWO, MINUS_TWO_AND_A_HALF, int(np.float64(-0.5).view(np.uint64))),
        ("min_f64", TWO, MINUS_TWO_AND_A_HALF, MINUS_TWO_AND_A_HALF),
        ("max_f64", TWO, MINUS_TWO_AND_A_HALF, TWO),
    ],
)
def test_lds_atomics_of_64_bits_by_hand(name: str, old: int, value: int, new: int) -> None:
    operation, _, kind = name.rpartition("_")
    text = f"""
    ds_write_b64 v0, v[2:3]
    s_waitcnt lgkmcnt(0)
    ds_{operation}_rtn_{kind} v[6:7], v0, v[4:5]
    s_waitcnt lgkmcnt(0)
    ds_read_b64 v[8:9], v0
    s_waitcnt lgkmcnt(0)
    """
    registers = {"v0": 8 * np.arange(64), "v[2:3]": old, "v[4:5]": value}
    state = run(text, registers)
    assert state.findings == []
    assert (state.pair("v[6:7]")[9], state.pair("v[8:9]")[9]) == (old, new)


@pytest.mark.parametrize(("bits", "data"), [(32, ("v2", "v4", "v6")), (64, ("v[2:3]", "v[4:5]", "v[6:7]"))])
def test_lds_compare_and_store_names_the_expected_value_first(bits: int, data: tuple[str, str, str]) -> None:
    held, expected, new = data
    registers = {"v0": 8 * np.arange(64), "v2": np.arange(64), "v3": 1, "v4": 5, "v5": 1, "v6": 77, "v7": 2}
    text = f"""
    ds_write_b{bits} v0, {held}
    s_waitcnt lgkmcnt(0)
    ds_cmpst_b{bits} v0, {expected}, {new}
    s_waitcnt lgkmcnt(0)
    ds_read_b{bits} {held}, v0
    s_waitcnt lgkmcnt(0)
    """
    state = run(text, registers)
    assert state.findings == []
    assert state.u("v2").tolist() == [77 if lane == 5 else lane for lane in range(64)]
    assert bits == 32 or state.u("v3").tolist() == [2 if lane == 5 else 1 for lane in range(64)]


def test_lanes_that_name_one_pair_of_dwords_take_turns() -> None:
    wait = "\ns_waitcnt lgkmcnt(0)\n"
    text = wait.join(["ds_write_b64 v0, v[2:3]", "ds_add_u64 v0, v[4:5]", "ds_read_b64 v[2:3], v0", "s_nop 0"])
    state = run(text, {"v0": 0, "v[2:3]": 0, "v[4:5]": 1 << 31})
    assert set(state.pair("v[2:3]").tolist()) == {64 << 31}
