"""Run a submission through Triton's interpreter; prints one JSON line a shape: [shape, elements that are wrong].

Usage: TRITON_INTERPRET=1 python run_submission.py SUBMISSION [MxNxK ...]
The submission's kernels quantise with an instruction of gfx950, which the interpreter learns from ``kernels``.
"""

from __future__ import annotations

import importlib.util
import json
import sys

import torch

from kernels.mxfp4.layouts import unshuffle_weight
from kernels.mxfp4.reference import compare, mxfp4_gemm_reference
from kernels.mxfp4.weights import PackedWeight
from kernels.problem import GemmShape
from kernels.triton import interpreter


def main(path: str, shapes: list[str]) -> None:
    spec = importlib.util.spec_from_file_location("submission", path)
    assert spec is not None and spec.loader is not None
    submission = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(submission)
    interpreter.install()
    for text in shapes:
        shape = GemmShape.parse(text)
        generator = torch.Generator().manual_seed(shape.M)
        a = torch.randn(shape.M, shape.K, generator=generator).to(torch.bfloat16)
        b = torch.randn(shape.N, shape.K, generator=generator).to(torch.bfloat16)
        weight = PackedWeight.from_dense(b)
        shuffled, scale = weight.data.view(torch.float4_e2m1fn_x2), weight.scale.view(torch.float8_e8m0fnu)
        result = submission.custom_kernel((a, b, unshuffle_weight(weight.data), shuffled, scale))
        print(json.dumps([text, compare(result, mxfp4_gemm_reference(a, weight)).mismatches]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
