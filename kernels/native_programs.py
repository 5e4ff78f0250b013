"""The programs of the families whose GEMM Triton does not make."""

from __future__ import annotations

from typing import Final

from kernels import aiter_library, hip_quantize
from kernels.code_object_launch import CodeObjectCoverage, launch_grid, prebuilt_kernel
from kernels.code_objects import accumulates_in_bf16, find_catalogue, slice_elements
from kernels.errors import InputError, UnavailableError
from kernels.library import WholeCoverage
from kernels.native import ArgumentType, HipKernel
from kernels.native_config import AiterConfig, StagedCkConfig, StagedHipConfig
from kernels.problem import GemmShape
from kernels.program import KernelCall, Program
from kernels.tiling import TileCoverage
from kernels.triton_calls import (
    cdiv,
    io_buffers,
    packed_buffers,
    quantize_call,
    summed,
    zero_call,
)

GEMM_SOURCE: Final = "gemm.hip"
GEMM_SYMBOL: Final = "mxfp4_gemm"
GEMM_POINTERS: Final = ("codes_ptr", "a_scale_ptr", "b_ptr", "b_scale_ptr", "out_ptr")
GEMM_INTEGERS: Final = ("M", "N", "K", "stride_om", "split_k", "GROUP_M", "num_xcds")
STORE_OUT, STORE_SLICES = 0, 1  # values of the macro STORE


def staged_hip(shape: GemmShape, config: StagedHipConfig, stride_am: int) -> Program:
    """Quantise in HIP, multiply in HIP, and sum where K is split."""
    split = config.split_k > 1
    gemm = KernelCall(
        gemm_kernel(config),
        (cdiv(shape.M, config.BLOCK_M) * cdiv(shape.N, config.BLOCK_N), config.split_k, 1),
        {"codes_ptr": "a_codes", "a_scale_ptr": "a_scale", "b_ptr": "b", "b_scale_ptr": "b_scale",
         "out_ptr": "slices" if split else "out", "M": shape.M, "N": shape.N, "K": shape.K, "stride_om": shape.N,
         "split_k": config.split_k, "GROUP_M": config.GROUP_M, "num_xcds": config.num_xcds},
        {},
        TileCoverage(
            shape.M, shape.N, config.BLOCK_M, config.BLOCK_N, config.GROUP_M, config.num_xcds, config.split_k
        ),
    )  # fmt: skip
    buffers = (*io_buffers(shape), *packed_buffers(shape))
    calls = (_hip_quantize_call(shape, config, stride_am), gemm)
    if not split:
        return Program(buffers, calls)
    return summed(shape, buffers, calls, config.split_k, config.REDUCE_BLOCK_M, config.REDUCE_BLOCK_N)


def gemm_kernel(config: StagedHipConfig) -> HipKernel:
    """The GEMM of ``kernels/hip`` for these template parameters; every shape shares its build."""
    return HipKernel(
        name=GEMM_SYMBOL,
        arg_names=(*GEMM_POINTERS, *GEMM_INTEGERS),
        threads=64 * config.waves_m * config.waves_n,
        source=GEMM_SOURCE,
        defines={
            "BLOCK_M": config.BLOCK_M, "BLOCK_N": config.BLOCK_N, "BLOCK_K": config.BLOCK_K,
            "WAVES_M": config.waves_m, "WAVES_N": config.waves_n, "NUM_STAGES": config.num_stages,
            "MFMA": config.matrix_instr_nonkdim, "STORE": STORE_SLICES if config.split_k > 1 else STORE_OUT,
        },
        arg_types=(*_types("ptr", GEMM_POINTERS), *_types("i32", GEMM_INTEGERS)),
    )  # fmt: skip


def _types(kind: ArgumentType, names: tuple[str, ...]) -> tuple[ArgumentType, ...]:
    return (kind,) * len(names)


def _hip_quantize_call(shape: GemmShape, config: StagedHipConfig | StagedCkConfig, stride_am: int) -> KernelCall:
    kernel = hip_quantize.quantize_kernel(config.QUANT_THREADS, config.QUANT_GROUPS, config.QUANT_VECTOR)
    return hip_quantize.hip_quantize_call(shape.M, shape.K, kernel, codes="a_codes", stride_am=stride_am)


def staged_ck(shape: GemmShape, config: StagedCkConfig, stride_am: int) -> Program:
    """Quantise, then multiply with the code object of this tile; into a cleared C where K is split.

    Raises:
        UnavailableError: There is no AITER here, or it has no such kernel.
    """
    try:
        code_object = find_catalogue().find(config.BLOCK_M, config.BLOCK_N)
    except InputError as error:
        raise UnavailableError(str(error)) from error
    gemm = KernelCall(
        prebuilt_kernel(code_object, shape, config.log2_k_split),
        launch_grid(shape, code_object, config.log2_k_split),
        {"out": "out", "a": "a_codes", "b": "b", "a_scale": "a_scale", "b_scale": "b_scale"},
        {},
        CodeObjectCoverage(shape, code_object, config.log2_k_split),
    )
    if config.quantize_kernel == "hip":
        quantize = _hip_quantize_call(shape, config, stride_am)
    else:
        quantize = quantize_call(shape, config.QUANT_BLOCK_M, config.QUANT_BLOCK_K, "hardware", stride_am)
    buffers = (*io_buffers(shape), *packed_buffers(shape))
    if not accumulates_in_bf16(config.log2_k_split):
        return Program(buffers, (quantize, gemm))
    slice_k = slice_elements(shape.K, config.log2_k_split)
    return Program(buffers, (quantize, zero_call(shape, "out"), gemm), bf16_slice_k=slice_k)


def aiter(shape: GemmShape, config: AiterConfig, stride_am: int) -> Program:
    """The library's own quantise kernel and GEMM, as one call of it."""
    call = KernelCall(
        aiter_library.KERNEL,
        (1, 1, 1),
        {"a": "a", "b": "b", "b_scale": "b_scale", "out": "out",
         "M": shape.M, "N": shape.N, "K": shape.K, "stride_am": stride_am},
        {},
        WholeCoverage(shape.M, shape.N),
    )  # fmt: skip
    return Program(io_buffers(shape), (call,))
