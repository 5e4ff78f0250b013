"""Conversions between integers, f16, bf16, f32 and f64.

MI300 ISA guide, section "VOP1 instructions". Floats are rounded to nearest even, and to whole numbers toward zero: what
is out of range saturates, NaN gives 0. The high half of 16-bit results is 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from search.gfx950.simulator.decode.op import Op, table
from search.gfx950.simulator.decode.values import LOW, Operation, bf16_bits, half_bits, paired, value_op
from search.gfx950.simulator.state.arrays import Array
from search.gfx950.simulator.state.shadow import pack_halves

_TO_FLOAT = (
    "f32_u32", "f32_i32", "f32_f16", "f32_bf16", "f32_f64", "f16_f32", "f16_u16", "f16_i16", "f64_f32", "f64_i32",
    "f64_u32",
)  # fmt: skip
_TO_WHOLE = {
    "u32_f32": np.uint32, "i32_f32": np.int32, "u16_f16": np.uint16, "i16_f16": np.int16, "i32_f64": np.int32,
    "u32_f64": np.uint32,
}  # fmt: skip


def _truncated(value: Array, dtype: Any) -> Array:
    bounds = np.iinfo(dtype)
    whole = np.where(np.isnan(value), 0.0, np.trunc(value.astype(np.float64)))
    return np.clip(whole, bounds.min, bounds.max).astype(dtype)


def _byte(number: int) -> Operation:
    return lambda word: (word >> np.uint32(8 * number)) & np.uint32(0xFF)


def _half_toward_zero(value: Array) -> Array:
    nearest = value.astype(np.float16)
    too_far = np.abs(nearest.astype(np.float32)) > np.abs(value)
    bits = nearest.view(np.uint16)
    return np.where(too_far & ~np.isinf(value), bits - np.uint16(1), bits).astype(np.uint32)


def _clamped(dtype: Any) -> Operation:
    """Both numbers, each clamped to the 16 bits of ``dtype``."""
    bounds = np.iinfo(dtype)
    return lambda x, y: paired(*(np.clip(value, bounds.min, bounds.max).astype(np.uint32) & LOW for value in (x, y)))


def _byte_replaced(value: Array, number: Array, word: Array) -> Array:
    """V_CVT_PK_U8_F32: S2 with byte S1[1:0] replaced by S0 rounded to nearest even and clamped to 0 … 255."""
    byte = np.clip(np.rint(np.nan_to_num(value, nan=0.0)), 0, 255).astype(np.uint32)
    place = (number & np.uint32(3)) << np.uint32(3)
    return np.asarray((word & ~(np.uint32(0xFF) << place)) | (byte << place))


def _named_by_types() -> Iterator[Op]:
    """V_CVT_D_S, with the types of D and S0 in its name."""
    for name in _TO_FLOAT:
        yield value_op(f"v_cvt_{name}", lambda value: value, *name.split("_"))
    for name, dtype in _TO_WHOLE.items():
        target, source = name.split("_")
        operation = partial(_truncated, dtype=dtype)
        yield value_op(f"v_cvt_{name}", operation, target.replace("i16", "u16"), source)


OPS = table(
    [
        *_named_by_types(),
        *(value_op(f"v_cvt_f32_ubyte{n}", _byte(n), "f32", "u32") for n in range(4)),
        value_op("v_cvt_rpi_i32_f32", lambda x: _truncated(np.floor(x + np.float64(0.5)), np.int32), "i32", "f32"),
        value_op("v_cvt_flr_i32_f32", lambda x: _truncated(np.floor(x), np.int32), "i32", "f32"),
        value_op("v_cvt_pkrtz_f16_f32", lambda x, y: paired(_half_toward_zero(x), _half_toward_zero(y)), "u32",
                 "f32 f32", shadow=pack_halves),
        value_op("v_cvt_pk_f16_f32", lambda x, y: paired(half_bits(x), half_bits(y)), "u32", "f32 f32"),
        value_op("v_cvt_pk_bf16_f32", lambda x, y: paired(bf16_bits(x), bf16_bits(y)), "u32", "f32 f32",
                 shadow=pack_halves),
        value_op("v_cvt_pk_i16_i32", _clamped(np.int16), "u32", "i32 i32"),
        value_op("v_cvt_pk_u16_u32", _clamped(np.uint16), "u32", "u32 u32"),
        value_op("v_cvt_pk_u8_f32", _byte_replaced, "u32", "f32 u32 u32"),
    ]
)  # fmt: skip
