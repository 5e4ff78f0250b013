"""Host time of one kernel launch through each binding of the HIP runtime, on a library that launches nothing.

Usage: python benchmarks/native_launch_cost.py [--calls 500] [--repeats 200]

Needs a C compiler, no GPU and no ROCm: the stand-in of the tests takes the place of libamdhip64, so the times are the
bindings' own. hip-python is included where it is installed (pip install hip-python). Each way launches the GEMM of
kernels/hip, five addresses and seven integers, on a given stream. Ways take turns, and the best of the repeats counts,
which other work on the machine disturbs least.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import struct
import subprocess
import sys
import tempfile
import timeit
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import torch.cuda._utils as torch_binding

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kernels.families.staged_hip import StagedHipConfig, gemm_kernel
from kernels.rocm.loader import native_runner
from kernels.rocm.runtime import ArgumentBuffer, HipRuntime
from search.terminal import TextTable, one_line_errors

Launch = Callable[[], object]
SOURCE = Path(__file__).resolve().parent.parent / "tests" / "kernels" / "fake_amdhip64.c"
VALUES = (*range(0x7F0000000000, 0x7F0000005000, 0x1000), 16, 2112, 7168, 2112, 7, 4, 8)
GRID, STREAM = (33, 7, 1), 0x5EA000
IMAGE = b"\x7fELF" + bytes(60)
KERNEL = gemm_kernel(StagedHipConfig())


def build_library(folder: Path) -> Path:
    """The stand-in, where hip-python looks for the real one under ROCM_PATH."""
    library = folder / "lib" / "libamdhip64.so"
    library.parent.mkdir()
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(SOURCE)], check=True)
    os.environ["ROCM_PATH"] = str(folder)
    return library


def product(library: Path) -> Launch:
    """What a plan does for one launch."""
    builds = SimpleNamespace(code_object=lambda kernel: IMAGE)
    run, _ = native_runner(KERNEL, GRID, HipRuntime(library), builds, lambda device: STREAM)  # type: ignore[arg-type]
    return lambda: run(*VALUES)


def bare_ctypes(library: Path) -> Launch:
    """The same call through ctypes with arguments that are packed already."""
    runtime = HipRuntime(library)
    launch = runtime.launcher(runtime.load(IMAGE, KERNEL.name), GRID, KERNEL.threads)
    arguments = ArgumentBuffer(68)
    return lambda: launch(STREAM, arguments)


def nothing_by_ctypes(library: Path) -> Launch:
    """A call without arguments: what no binding by ctypes goes below."""
    function = ctypes.CDLL(str(library)).hipGetLastError
    return lambda: function()


def torch_own(library: Path) -> Launch:
    """The class behind ``torch.cuda._compile_kernel``, which is private and takes no packed buffer."""
    hip = ctypes.CDLL(str(library))
    runtime = SimpleNamespace(cuLaunchKernel=lambda *given: 0 * hip.hipModuleLaunchKernel(*given))
    torch_binding._get_gpu_runtime_library = lambda: runtime  # type: ignore[assignment,return-value]
    kernel = torch_binding._CudaKernel(ctypes.c_void_p(1), ctypes.c_void_p(1))
    stream = SimpleNamespace(_as_parameter_=ctypes.c_void_p(STREAM))
    return lambda: kernel(GRID, (KERNEL.threads, 1, 1), list(VALUES), 0, stream)


def hip_python(library: Path, *, packed: bool) -> Launch | None:
    """hip-python with our packed buffer, or with the tuple of typed values that it packs itself."""
    try:
        from hip import hip
    except ImportError:
        return None
    module = hip.hipModuleLoadData(IMAGE)[1]
    function = hip.hipModuleGetFunction(module, KERNEL.name.encode())[1]
    pack = struct.Struct("<5Q7i").pack_into
    buffer = ArgumentBuffer(68)
    extra = ctypes.addressof(buffer.extra)
    block = (KERNEL.threads, 1, 1, 0, STREAM, None)

    def with_buffer() -> None:
        pack(buffer.memory, 0, *VALUES)
        (status,) = hip.hipModuleLaunchKernel(function, *GRID, *block, extra)
        if status:
            raise RuntimeError(status)

    def with_tuple() -> None:
        typed = (*map(ctypes.c_void_p, VALUES[:5]), *map(ctypes.c_int, VALUES[5:]))
        (status,) = hip.hipModuleLaunchKernel(function, *GRID, *block, typed)
        if status:
            raise RuntimeError(status)

    return with_buffer if packed else with_tuple


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=200)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        library = build_library(Path(folder))
        ways: dict[str, Launch | None] = {
            "ctypes: a call without arguments": nothing_by_ctypes(library),
            "ctypes: the launch alone, packed before": bare_ctypes(library),
            "this project's runner": product(library),
            "hip-python, packed by struct": hip_python(library, packed=True),
            "hip-python, packed by itself": hip_python(library, packed=False),
            "torch.cuda._utils._CudaKernel": torch_own(library),
        }
        best = dict.fromkeys(ways, float("inf"))
        for _ in range(arguments.repeats):
            for name, launch in ways.items():
                if launch is not None:
                    best[name] = min(best[name], timeit.timeit(launch, number=arguments.calls) / arguments.calls * 1e6)
    rows = tuple(
        (name, f"{best[name]:.2f}" if launch is not None else "not installed") for name, launch in ways.items()
    )
    print(TextTable(("way", "us a launch"), rows, frozenset({"us a launch"})).plain())


if __name__ == "__main__":
    with one_line_errors():
        main()
