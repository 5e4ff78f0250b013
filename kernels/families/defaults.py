"""The configuration that serves a shape which no table covers: legal for every M, N, K, and a fair start."""

from __future__ import annotations

from typing import Literal

from kernels.device import DeviceKey
from kernels.families.fused import SplitKWorkspaceConfig, TileConfig
from kernels.families.staged_triton import StagedConfig
from kernels.problem import GemmShape

STAGED_FROM_M = 128  # below, a quantise kernel of its own costs more than it saves (public winners on CDNA 4)
LONG_K = 2048  # from here on few tiles leave most compute units idle unless K is split
MAX_SPLIT_K = 16
ROUNDED_FROM_M = 32  # the same without an FP4 matrix unit, where each program of a fused kernel rounds A anew (H200)
ROUNDED_LDS = 208 << 10  # three steps of rounded A and two of the weight, of the largest tile of :func:`_rounded`


def default_choice(shape: GemmShape, device: DeviceKey) -> tuple[str, TileConfig]:
    """Family and configuration for ``shape`` where nothing was tuned.

    Large M is quantised once and multiplied with large tiles; small M with a long K is split so that about every
    compute unit has a program; the rest is one fused kernel.
    """
    roomy = device.architecture.lds_bytes >= ROUNDED_LDS
    if roomy and not device.has_scaled_fp4 and shape.M >= ROUNDED_FROM_M:
        return "staged_triton", _rounded(shape, device)
    quantizer, a_operand = _quantizer(device), _a_operand(device)
    if shape.M >= STAGED_FROM_M:
        return "staged_triton", StagedConfig(
            BLOCK_M=64,
            BLOCK_N=128,
            BLOCK_K=256,
            GROUP_M=4,
            num_warps=4,
            num_stages=2,
            quantizer=quantizer,
            a_operand=a_operand,
        )
    block_m = 16 if shape.M <= 16 else 32
    tiles = -(-shape.M // block_m) * -(-shape.N // 64)
    split_k = min(MAX_SPLIT_K, device.cu_count // tiles, shape.K // 256)
    if shape.K >= LONG_K and split_k > 1:
        return "fused_splitk_workspace", SplitKWorkspaceConfig(
            BLOCK_M=block_m, BLOCK_N=64, BLOCK_K=256, split_k=split_k, quantizer=quantizer, a_operand=a_operand
        )
    return "fused", TileConfig(BLOCK_M=block_m, BLOCK_N=64, BLOCK_K=256, quantizer=quantizer, a_operand=a_operand)


def _rounded(shape: GemmShape, device: DeviceKey) -> StagedConfig:
    """A rounded once, a row a program; tiles as tall as M allows, and K split while compute units have none."""
    block_m = min(128, 1 << (shape.M - 1).bit_length())
    tiles = -(-shape.M // block_m) * -(-shape.N // 64)
    return StagedConfig(
        BLOCK_M=block_m,
        BLOCK_N=64,
        BLOCK_K=256,
        num_warps=4,
        num_stages=3,
        split_k=max(1, min(MAX_SPLIT_K, device.cu_count // tiles, shape.K // 512)),
        QUANT_BLOCK_M=1,
        QUANT_BLOCK_K=1024,
        quantizer="software",
        a_operand="bf16",
    )


def smallest_choice(device: DeviceKey) -> tuple[str, TileConfig]:
    """The least demanding configuration, for where the compiler rejects the tuned one and the default."""
    return "fused", TileConfig(
        BLOCK_M=16, BLOCK_N=32, BLOCK_K=128, num_warps=4, num_stages=1, quantizer=_quantizer(device)
    )


def _quantizer(device: DeviceKey) -> Literal["hardware", "software"]:
    return "hardware" if device.has_scaled_fp4 else "software"


def _a_operand(device: DeviceKey) -> Literal["e2m1", "bf16"]:
    return "e2m1" if device.has_scaled_fp4 else "bf16"  # no FP4 matrix unit: bf16 x e2m1 lowers to better code
