"""Fake-quantise tiles through Triton's interpreter, in a process of their own; prints how many values differ.

Usage: TRITON_INTERPRET=1 python fake_quantized.py
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.mxfp4.numerics import quantize
from kernels.triton.quantize import fake_quantize_tile

ROWS, COLUMNS = 64, 256


@triton.jit
def fake_quantize_kernel(x_ptr, y_ptr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    offsets = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tl.store(y_ptr + offsets, fake_quantize_tile(tl.load(x_ptr + offsets), ROWS, COLUMNS))


def patterns() -> torch.Tensor:
    """Rows [512, 256] of bf16: every bit pattern once, then random patterns that mostly hold no NaN, then ties."""
    generator = torch.Generator().manual_seed(1)
    every = torch.randperm(1 << 16, generator=generator)
    one_exponent = torch.randint(0, 256, (64, 8, 1), generator=generator) << 7  # of each block
    finite = one_exponent - (torch.randint(0, 5, (64, 8, 32), generator=generator) << 7)
    finite = finite.clamp(0, 0x7F00) | torch.randint(0, 128, (64, 8, 32), generator=generator)
    finite |= torch.randint(0, 2, (64, 8, 32), generator=generator) << 15
    halves = torch.randint(-24, 25, (64, COLUMNS), generator=generator) / 4  # the grid of E2M1, its ties, beyond
    patterns = halves.to(torch.bfloat16).view(torch.int16)
    bits = torch.cat([every.reshape(-1, COLUMNS), finite.reshape(-1, COLUMNS), patterns])
    x = bits.to(torch.int16).view(torch.bfloat16)
    normal = torch.randn(ROWS, COLUMNS, generator=generator).to(torch.bfloat16)
    normal[:8] = 0
    normal[8, 3], normal[9, 40], normal[10, 77] = torch.inf, -torch.inf, torch.nan
    return torch.cat([x, normal, torch.zeros(ROWS, COLUMNS, dtype=torch.bfloat16)])


if __name__ == "__main__":
    x = patterns()
    y = torch.full_like(x, 7.0)
    fake_quantize_kernel[(x.shape[0] // ROWS,)](x, y, ROWS, COLUMNS)
    want = quantize(x).dequantize(torch.float64).to(torch.bfloat16)
    same = (y == want) | (y.isnan() & want.isnan())
    print(x.numel(), int((~same).sum()))
