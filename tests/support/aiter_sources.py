"""A made-up AITER: Triton kernels with the names and arguments of AITER's and no work of theirs; configurations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

TILE = "BLOCK_SIZE_M BLOCK_SIZE_N BLOCK_SIZE_K GROUP_SIZE_M NUM_KSPLIT SPLITK_BLOCK_SIZE EVEN_K"
LAUNCH = "num_warps num_stages waves_per_eu matrix_instr_nonkdim"
STRIDES = "stride_am stride_ak stride_bn stride_bk stride_ck stride_cm stride_cn"
KERNELS = {
    "gemm/basic/gemm_a16wfp4.py": (
        "_gemm_a16wfp4_preshuffle_kernel",
        f"a_ptr b_ptr c_ptr b_scales_ptr M N K {STRIDES} stride_bsn stride_bsk",
        f"{TILE} {LAUNCH} GRID_MN PREQUANT cache_modifier",
    ),
    "gemm/basic/gemm_afp4wfp4.py": (
        "_gemm_afp4wfp4_preshuffle_kernel",
        f"a_ptr b_ptr c_ptr a_scales_ptr b_scales_ptr M N K {STRIDES} stride_asm stride_ask stride_bsn stride_bsk",
        f"{TILE} {LAUNCH} cache_modifier",
    ),
    "common/splitk_reduce.py": (
        "_gemm_splitk_reduce_kernel",
        "c_in_ptr c_out_ptr bias_ptr M N stride_c_in_k stride_c_in_m stride_c_in_n stride_c_out_m stride_c_out_n",
        "BLOCK_SIZE_M BLOCK_SIZE_N ACTUAL_KSPLIT MAX_KSPLIT ADD_BIAS activation use_activation KERNEL_NAME",
    ),
}
CONFIGS = "aiter/ops/triton/configs"


def write_kernels(root: Path, *files: str) -> None:
    """Write the kernels of ``files``, of all where none is named, into the AITER in ``root``."""
    for file in files or KERNELS:
        name, runtime, constants = KERNELS[file]
        parameters = [*runtime.split(), *(f"{constant}: tl.constexpr" for constant in constants.split())]
        path = root / "aiter/ops/triton/_triton_kernels" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        head = "import triton\nimport triton.language as tl\n\n\n@triton.heuristics({})\n@triton.jit\n"
        path.write_text(f"{head}def {name}({', '.join(parameters)}):\n    pass\n")


def write_configs(root: Path, file: str, content: Mapping[str, Mapping[str, object]]) -> None:
    """Write one file of configurations into the AITER in ``root``."""
    path = root / CONFIGS / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
