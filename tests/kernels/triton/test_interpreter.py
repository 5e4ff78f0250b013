"""kernels.triton.interpreter: what is added to Triton's interpreter computes as the hardware does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton._C.libtriton import ir

from kernels.triton.interpreter import _dot_of_fp4, bf16_bits

E2M1, E5M2 = ir.ScaleDotElemTypeTY.E2M1, ir.ScaleDotElemTypeTY.E5M2


def test_fp32_is_rounded_to_bf16_as_torch_does() -> None:
    patterns = np.random.default_rng(1).integers(0, 1 << 32, 100_000, np.uint64).astype(np.uint32)
    ties = np.arange(1 << 16, dtype=np.uint32) << 16 | 0x8000
    values = np.concatenate([patterns, ties, ties - 1, ties + 1]).view(np.float32)
    rounded = torch.from_numpy(bf16_bits(values)).view(torch.bfloat16)
    expected = torch.from_numpy(values).to(torch.bfloat16)
    assert torch.equal(rounded.isnan(), expected.isnan())
    assert torch.equal(rounded.nan_to_num(0).view(torch.int16), expected.nan_to_num(0).view(torch.int16))


def handle(values: Any, dtype: Any) -> Any:
    return SimpleNamespace(data=np.array(values, dtype))


def test_six_times_two_to_the_127_times_something_small_is_finite() -> None:
    a, b = handle([[0x77] * 16], np.uint8), handle([[0x11]] * 16, np.uint8)  # 6 and 0.5
    a_scale, b_scale = handle([[254]], np.uint8), handle([[2]], np.uint8)  # 2**127 and 2**-125
    product = _dot_of_fp4(None)(None, a, a_scale, E2M1, b, b_scale, E2M1, True, True, True, handle([[1.0]], np.float32))
    assert product.data.tolist() == [[32 * 6 * 0.5 * 2**2 + 1.0]]
    assert product.dtype == tl.float32


def test_products_of_other_formats_are_left_to_triton() -> None:
    assert _dot_of_fp4(lambda *arguments: "Triton's own")(None, 0, 0, E5M2, 0, 0, E2M1) == "Triton's own"
