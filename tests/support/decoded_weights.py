"""Decode every code with every scale byte through Triton's interpreter, in a process of its own; prints the values.

Usage: TRITON_INTERPRET=1 python decoded_weights.py
"""

from __future__ import annotations

import json

import torch
import triton
import triton.language as tl

from kernels.triton.decoded import e2m1_values, power_of_byte, times


@triton.jit
def decode_kernel(out_ptr):  # type: ignore[no-untyped-def]
    codes = tl.arange(0, 16)
    byte = tl.program_id(0) + codes * 0
    low, _ = e2m1_values(codes.to(tl.uint8))
    tl.store(out_ptr + tl.program_id(0) * 16 + codes, times(low, power_of_byte(byte.to(tl.uint8))))


if __name__ == "__main__":
    values = torch.full((256, 16), 7.0, dtype=torch.bfloat16)
    decode_kernel[(256,)](values)
    print(json.dumps(values.view(torch.int16).tolist()))
