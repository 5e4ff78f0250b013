"""Whole kernels: Triton compiled for gfx950, executed, compared with float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from search.gfx950.simulator import (  # noqa: E402
    InstructionClass,
    SimulatedBuffer,
    SimulatedLaunch,
    SimulationResult,
    load_assembly,
    simulate,
)

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
RNG = np.random.default_rng(11)


@triton.jit
def scaled_gemm(
    a_ptr, a_scale_ptr, b_ptr, b_scale_ptr, c_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(tl.program_id(2) * BLOCK_K, K, BLOCK_K * SPLIT_K):
        offs_b = k // 2 + tl.arange(0, BLOCK_K // 2)
        offs_s = k // 32 + tl.arange(0, BLOCK_K // 32)
        rows, columns = (offs_m < M)[:, None], (offs_n < N)[:, None]
        a = tl.load(
            a_ptr + offs_m[:, None] * (K // 2) + offs_b[None, :], mask=rows & (offs_b < K // 2)[None, :], other=0
        )
        b = tl.load(
            b_ptr + offs_n[:, None] * (K // 2) + offs_b[None, :], mask=columns & (offs_b < K // 2)[None, :], other=0
        )
        sa = tl.load(
            a_scale_ptr + offs_m[:, None] * (K // 32) + offs_s[None, :],
            mask=rows & (offs_s < K // 32)[None, :],
            other=0,
        )
        sb = tl.load(
            b_scale_ptr + offs_n[:, None] * (K // 32) + offs_s[None, :],
            mask=columns & (offs_s < K // 32)[None, :],
            other=0,
        )
        acc = tl.dot_scaled(a, sa, "e2m1", b.T, sb, "e2m1", acc)
    c = c_ptr + offs_m[:, None] * N + offs_n[None, :]
    mask = (offs_m < M)[:, None] & (offs_n < N)[None, :]
    if SPLIT_K == 1:
        tl.store(c, acc.to(tl.bfloat16), mask=mask)
    else:
        tl.atomic_add(c, acc, mask=mask, sem="relaxed")


@triton.jit
def bf16_gemm(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + offs_k[None, :] * M + offs_m[:, None])  # A is stored transposed
        b = tl.load(b_ptr + offs_k[:, None] * N + offs_n[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + offs_m[:, None] * N + offs_n[None, :], acc)


@triton.jit
def softmax(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * N + offs, mask=offs < N, other=-float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + tl.program_id(0) * N + offs, e / tl.sum(e, 0), mask=offs < N)


def compiled(function: Any, types: dict[str, str], constexprs: dict[str, int], **options: int) -> Any:
    signature = {name: types.get(name, "constexpr") for name in function.arg_names}
    attributes = {
        (position,): [["tt.divisibility", 16], ["tt.pointer_range", 32]]
        for position, name in enumerate(function.arg_names)
        if types.get(name, "").startswith("*")
    }
    source = ASTSource(function, signature, constexprs, attributes)
    return triton.compile(source, target=GPUTarget("hip", "gfx950", 64), options=options)


def execute(binary: Any, arguments: dict[str, Any], grid: tuple[int, int, int], num_warps: int) -> SimulationResult:
    launch = SimulatedLaunch(arguments, grid, (64 * num_warps, 1, 1), binary.metadata.shared)
    return simulate(load_assembly(binary.asm["amdgcn"]), launch)


def dequantized(codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    values = E2M1[np.stack([codes & 15, codes >> 4], axis=-1).reshape(len(codes), -1)]
    return values * np.repeat(2.0 ** (scales.astype(float) - 127), 32, axis=1)


@pytest.mark.parametrize(
    ("tile", "split_k", "num_warps", "nonkdim"),
    [((16, 32, 256), 1, 2, 16), ((32, 64, 256), 2, 4, 32), ((16, 32, 128), 1, 1, 16)],
)
def test_scaled_gemm_with_tails(tile: tuple[int, int, int], split_k: int, num_warps: int, nonkdim: int) -> None:
    block_m, block_n, block_k = tile
    m, n, k = block_m + 3, 2 * block_n - 16, 2 * block_k + 64
    a, b = (RNG.integers(0, 256, (rows, k // 2), dtype=np.uint8) for rows in (m, n))
    sa, sb = (RNG.integers(120, 130, (rows, k // 32), dtype=np.uint8) for rows in (m, n))
    types = {name: "*u8" for name in ("a_ptr", "a_scale_ptr", "b_ptr", "b_scale_ptr")} | dict.fromkeys("MNK", "i32")
    types["c_ptr"] = "*bf16" if split_k == 1 else "*fp32"
    constexprs = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "SPLIT_K": split_k}
    binary = compiled(scaled_gemm, types, constexprs, num_warps=num_warps, matrix_instr_nonkdim=nonkdim)
    out = np.full((m, n), 0xFFFF, np.uint16) if split_k == 1 else np.zeros((m, n), np.float32)
    arguments = {
        "a": a,
        "sa": sa,
        "b": b,
        "sb": sb,
        "c": SimulatedBuffer(out, initialised=split_k > 1),
        "M": m,
        "N": n,
        "K": k,
    }
    result = execute(binary, arguments, (2, 2, split_k), num_warps)
    assert result.clean, [str(finding) for finding in result.findings]
    exact = dequantized(a, sa) @ dequantized(b, sb).T
    if split_k == 1:
        values = (out.astype(np.uint32) << 16).view(np.float32)
        assert np.abs(values - exact).max() <= 2.0**-8 * np.abs(exact).max()
    else:
        assert np.abs(out - exact).max() <= 2.0**-22 * np.abs(exact).max()
    assert result.histogram.by_class[InstructionClass.MFMA] > 0


def test_bf16_gemm_through_transposing_lds_reads() -> None:
    m, n, k = 64, 128, 128
    a, b = RNG.standard_normal((k, m)).astype(np.float32), RNG.standard_normal((k, n)).astype(np.float32)
    a_bits, b_bits = ((x.view(np.uint32) >> 16).astype(np.uint16) for x in (a, b))
    types = {"a_ptr": "*bf16", "b_ptr": "*bf16", "c_ptr": "*fp32"} | dict.fromkeys("MNK", "i32")
    binary = compiled(bf16_gemm, types, {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}, num_warps=4)
    out = np.zeros((m, n), np.float32)
    result = execute(
        binary, {"a": a_bits, "b": b_bits, "c": SimulatedBuffer(out, False), "M": m, "N": n, "K": k}, (1, 2, 1), 4
    )
    assert result.clean, [str(finding) for finding in result.findings]
    exact_a, exact_b = ((x.astype(np.uint32) << 16).view(np.float32).astype(float) for x in (a_bits, b_bits))
    assert np.abs(out - exact_a.T @ exact_b).max() < 1e-4
    assert result.histogram.by_mnemonic["ds_read_b64_tr_b16"] > 0


def test_reductions_across_lanes_and_waves() -> None:
    x = RNG.standard_normal((3, 900)).astype(np.float32)
    out = np.zeros_like(x)
    binary = compiled(softmax, {"x_ptr": "*fp32", "y_ptr": "*fp32", "N": "i32"}, {"BLOCK": 1024}, num_warps=4)
    result = execute(binary, {"x": x, "y": SimulatedBuffer(out, False), "N": 900}, (3, 1, 1), 4)
    assert result.clean, [str(finding) for finding in result.findings]
    exact = np.exp(x.astype(float) - x.max(1, keepdims=True))
    assert np.abs(out - exact / exact.sum(1, keepdims=True)).max() < 1e-7
    assert result.histogram.by_class[InstructionClass.TRANSCENDENTAL] > 0


def test_a_wrong_argument_leaves_the_buffer_and_is_found() -> None:
    x, out = np.zeros((1, 900), np.float32), np.zeros((1, 900), np.float32)
    binary = compiled(softmax, {"x_ptr": "*fp32", "y_ptr": "*fp32", "N": "i32"}, {"BLOCK": 1024}, num_warps=4)
    result = execute(binary, {"x": x, "y": SimulatedBuffer(out, False), "N": 901}, (1, 1, 1), 4)
    assert {finding.kind.value for finding in result.findings} == {"out_of_bounds"}
