"""kernels.runtime.runner: a kernel's key is the same in every process, whatever the process compiled before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
# Triton 3.6 gives a kernel another key where a kernel with the same device functions was hashed before it.
SCRIPT = """
import json, sys
from kernels.families import triton_functions
from kernels.runtime.runner import settle_cache_keys
if sys.argv[1] == "settled":
    settle_cache_keys()
KERNELS = triton_functions()
first = [kernel for kernel in KERNELS if kernel.__name__ in sys.argv[2:]]
print(json.dumps({kernel.__name__: kernel.cache_key for kernel in [*first, *KERNELS]}))
"""


def keys(*arguments: str) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
             "TRITON_INTERPRET": "0"},
        capture_output=True,
        text=True,
        check=True,
    )  # fmt: skip
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_settled_keys_are_those_of_a_process_that_met_the_fused_kernel_first() -> None:
    fused_first = keys("as it comes", "fused_gemm_kernel")
    assert keys("settled", "quantize_kernel", "staged_gemm_kernel") == fused_first
    assert len(set(fused_first.values())) == len(fused_first) > 1
