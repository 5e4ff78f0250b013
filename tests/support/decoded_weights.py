"""Decode every code with every scale byte through Triton's interpreter, in a process of its own; prints the values.

Usage: TRITON_INTERPRET=1 python decoded_weights.py
"""

from __future__ import annotations

import json

import torch
import triton
import triton.language as tl

from kernels.triton.decoded import decode_words, power_bits


@triton.jit
def decode_kernel(out_ptr):  # type: ignore[no-untyped-def]
    words = tl.where(tl.arange(0, 2) == 0, 0x76543210, -0x01234568)  # codes 0 to 7, and 8 to 15
    byte = (tl.program_id(0) + tl.arange(0, 2) * 0).to(tl.uint8)
    values = decode_words(words, power_bits(byte))
    tl.store(out_ptr + tl.program_id(0) * 16 + tl.arange(0, 16), tl.reshape(values, (16,)))


if __name__ == "__main__":
    values = torch.full((256, 16), 7.0, dtype=torch.bfloat16)
    decode_kernel[(256,)](values)
    print(json.dumps(values.view(torch.int16).tolist()))
