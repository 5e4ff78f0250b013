"""Run programs through Triton's interpreter, in a process of their own; prints one JSON line a case.

Usage: TRITON_INTERPRET=1 python interpreted.py '[[M, N, K, family, {config}, row_padding], ...]'
Workspaces and the output start as NaN, packed workspaces and all scale pads as 0xFF. A is strided by row_padding.
"""

from __future__ import annotations

import json
import sys

import torch

from kernels.families import FAMILIES
from kernels.launches.program import Program
from kernels.mxfp4.layouts import padded_scale_shape, shuffle_scales
from kernels.mxfp4.reference import compare, mxfp4_gemm_reference
from kernels.mxfp4.weights import PackedWeight
from kernels.problem import BLOCK, GemmShape
from kernels.runtime.plan import load_program
from kernels.runtime.runner import allocate


def poisoned_scales(weight: PackedWeight) -> torch.Tensor:
    """The weight's shuffled scales with 0xFF in every pad byte."""
    rows, groups = padded_scale_shape(weight.N, weight.K // BLOCK)
    natural = torch.full((rows, groups), 0xFF, dtype=torch.uint8)
    natural[: weight.N, : weight.K // BLOCK] = weight.unshuffled().scales
    return shuffle_scales(natural)


def poisoned_tensors(program: Program) -> dict[str, torch.Tensor]:
    """Workspaces and output filled with what must never be read."""
    tensors = {}
    for buffer in program.buffers:
        if buffer.role != "input":
            tensors[buffer.name] = allocate(buffer, "cpu")
        if buffer.role in ("workspace", "output"):
            tensors[buffer.name].fill_(0xFF if buffer.dtype == "u8" else float("nan"))
    return tensors


def run(M: int, N: int, K: int, family: str, knobs: dict[str, int | str], row_padding: int) -> dict[str, object]:
    generator = torch.Generator().manual_seed(M * 7919 + N * 31 + K)
    a = torch.randn(M, K + row_padding, generator=generator).to(torch.bfloat16)[:, :K]
    weight = PackedWeight.from_dense(torch.randn(N, K, generator=generator).to(torch.bfloat16))
    kind = FAMILIES[family]
    program = kind.program(GemmShape(M, N, K), kind.config(knobs), a.stride(0))
    tensors = {"a": a, "b": weight.data, "b_scale": poisoned_scales(weight), **poisoned_tensors(program)}
    load_program(program, tensors).run(tensors)
    report = compare(tensors["out"], mxfp4_gemm_reference(a, weight))
    return {"mismatches": report.mismatches, "max_bf16_ulp": report.max_bf16_ulp, "nan_count": report.nan_count}


if __name__ == "__main__":
    for case in json.loads(sys.argv[1]):
        print(json.dumps(run(*case)), flush=True)
