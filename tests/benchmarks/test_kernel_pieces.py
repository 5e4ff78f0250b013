"""benchmarks/kernel_pieces.py: what is predicted of measured pieces, and how errors are summed up."""

from __future__ import annotations

import pytest
from kernel_pieces import Piece, pieces, summary

from search.gfx950.machine import GPUMODE

ROW = {"op": "", "M": "8", "N": "", "K": "1024", "kernel": "", "us": "4.0", "timing": ""}


def test_an_empty_kernel_takes_the_harness_and_hardly_more() -> None:
    (piece,) = pieces([ROW | {"op": "empty kernel in GPU MODE harness", "kernel": "one thread"}])
    assert GPUMODE.launch_us < piece.predicted_us < GPUMODE.launch_us + 0.5


@pytest.mark.parametrize(
    ("op", "kernel"),
    [
        ("gemm bf16xbf16", "hipBLASLt BF16"),
        ("gemm mxfp4xmxfp4->bf16", "hipBLASLt FP4 (TN, VEC32_UE8M0)"),
        ("quantise bf16->mxfp4", "Triton dynamic_mxfp4_quant before #452"),
    ],
)
def test_kernels_that_are_not_here_are_left_out(op: str, kernel: str) -> None:
    assert list(pieces([ROW | {"op": op, "kernel": kernel}])) == []


def test_the_summary_has_the_median_and_the_worst_error() -> None:
    found = [Piece("quantise", ROW, us) for us in (4.0, 4.4, 3.0)]
    words = summary("quantise", found).split()
    assert words == ["quantise", "3", "rows", "median", "|error|", "10.0%", "worst", "25.0%"]
