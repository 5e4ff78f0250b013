"""The portable path of hip/quantize.hip on an NVIDIA GPU: bit-exact, and how fast beside a plain copy.

Usage: python benchmarks/hip_quantize_device.py [--out DIR] [--sizes 64x2048,...] [--parameters all|few]
                                                [--cubins DIR] [--build-only sm_90]

Builds every set of parameters with nvcc (on PATH, in CUDA_HOME or /usr/local/cuda), compares what each computes with
the reference quantiser (exhaustive, random and special values; tails, strided and misaligned rows), then times it cold
by the protocol of search/device/timing.py, between two measurements of copies on the device. --cubins keeps builds, and
takes those that are there, so that a machine without nvcc can run them; --build-only needs no GPU.
Writes hip_quantize.json to --out. Exit code 1 if a result is wrong.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import torch
import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from quantize_inputs import as_matrix, block_sets, random_values
from required import required_gpu

from kernels.families.stages import GROUPS, SOURCE, SYMBOL, THREADS, VECTORS, hip_quantize_call, hip_quantize_kernel
from kernels.launches.native import HipKernel
from kernels.mxfp4.layouts import padded_scale_shape, unshuffle_scales
from kernels.mxfp4.numerics import Mxfp4Tensor, quantize
from kernels.rocm.compiler import SOURCES, read_sources
from search.device.gpu import Gpu
from search.device.timing import COLD, Launch, Timing, sample_until_sure
from search.terminal import one_line_errors

SIZES: Final = "64x2048,256x7168,4096x7168,16384x8192"
FEW: Final = ((64, 1, 8), (256, 1, 8), (256, 2, 8), (256, 4, 8), (1024, 4, 8), (256, 1, 4), (256, 4, 16), (256, 4, 32))
TAILS: Final = ((1, 64), (3, 448), (16, 320), (17, 576), (33, 2112), (257, 64), (1000, 2624))
GUARD: Final = 4096  # bytes around each output that nobody may write
COPY_BYTES: Final = 1 << 30
PROTOCOL: Final = replace(COLD, budget_s=0.2)
NAN_BYTE: Final = 255


def find_nvcc() -> str:
    """Path of nvcc.

    Raises:
        SystemExit: There is none.
    """
    homes = [Path(home) for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if home]
    found = shutil.which("nvcc") or next((str(p) for h in homes if (p := h / "bin/nvcc").exists()), None)
    if found is None:
        raise SystemExit("nvcc is neither on PATH nor in CUDA_HOME: give --cubins with builds of another machine")
    return found


def build(kernel: HipKernel, arch: str, folder: Path) -> Path:
    """The cubin of ``kernel`` in ``folder``, built unless it is there.

    Raises:
        SystemExit: The compiler rejects the source.
    """
    sources = b"".join(content for _, content in sorted(read_sources(SOURCE).items()))
    name = "-".join(map(str, kernel.defines.values()))
    path = folder / f"quantize-{arch}-{name}-{hashlib.sha256(sources).hexdigest()[:12]}.cubin"
    if path.exists():
        return path
    defines = [f"-D{name}={value}" for name, value in kernel.defines.items()]
    part = path.with_suffix(".part")
    command = [find_nvcc(), "-x", "cu", f"-arch={arch}", "-std=c++17", "-O3", "-cubin", *defines, "-o", str(part)]
    done = subprocess.run([*command, str(SOURCES / SOURCE)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
    return part.replace(path)


class Driver:
    """The few functions of CUDA's driver that load and launch a cubin, in the context that torch made."""

    def __init__(self) -> None:
        torch.zeros(1, device="cuda")
        self._library = ctypes.CDLL("libcuda.so.1")
        pointer, unsigned = ctypes.c_void_p, ctypes.c_uint
        self._library.cuLaunchKernel.argtypes = [pointer, *[unsigned] * 7, pointer, pointer, pointer]
        self._library.cuModuleLoadData.argtypes = [pointer, ctypes.c_char_p]
        self._library.cuModuleGetFunction.argtypes = [pointer, pointer, ctypes.c_char_p]
        self._library.cuGetErrorName.argtypes = [ctypes.c_int, pointer]

    def _check(self, code: int, what: str) -> None:
        if code:
            name = ctypes.c_char_p()
            self._library.cuGetErrorName(code, ctypes.byref(name))
            raise RuntimeError(f"{what}: {(name.value or b'?').decode()} ({code})")

    def load(self, cubin: bytes) -> ctypes.c_void_p:
        """The kernel of a cubin; it stays loaded."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._check(self._library.cuModuleLoadData(ctypes.byref(module), cubin), "cuModuleLoadData")
        found = self._library.cuModuleGetFunction(ctypes.byref(function), module, SYMBOL.encode())
        self._check(found, "cuModuleGetFunction")
        return function

    def launch(self, function: ctypes.c_void_p, grid: Sequence[int], threads: int, arguments: bytes) -> None:
        """Queue on torch's current stream; the arguments are copied."""
        buffer, size = ctypes.create_string_buffer(arguments, len(arguments)), ctypes.c_size_t(len(arguments))
        # CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END
        extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(size), 0)
        stream = torch.cuda.current_stream().cuda_stream
        self._check(
            self._library.cuLaunchKernel(function, *grid, threads, 1, 1, 0, stream, None, extra), "cuLaunchKernel"
        )


@dataclass(frozen=True, eq=False)
class Quantizer:
    """A loaded kernel."""

    driver: Driver
    kernel: HipKernel
    function: ctypes.c_void_p

    def __str__(self) -> str:
        threads, groups, vector = self.kernel.defines.values()
        return f"threads {threads:4} groups {groups} vector {vector:2}"

    def launch(self, a: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor) -> None:
        """Quantise ``a`` [M, K]."""
        M, K = a.shape
        pointers = {"a_ptr": a.data_ptr(), "codes_ptr": codes.data_ptr(), "scale_ptr": scales.data_ptr()}
        packed = self.kernel.pack({**pointers, "M": M, "K": K, "stride_am": a.stride(0)})
        self.driver.launch(self.function, hip_quantize_call(M, K, self.kernel).grid, self.kernel.threads, packed)


@dataclass(frozen=True, eq=False)
class Case:
    """An input with its reference, on the GPU."""

    name: str
    a: torch.Tensor
    reference: Mxfp4Tensor


def _on_gpu(patterns: Any, *, stride: int | None = None, offset: int = 0) -> torch.Tensor:
    """[M, K] bf16 with these bits, rows ``stride`` elements apart, ``offset`` elements into their storage."""
    M, K = patterns.shape
    stride = stride or K
    storage = torch.full((offset + M * stride,), float("nan"), dtype=torch.bfloat16, device="cuda")
    a = storage.as_strided((M, K), (stride, 1), offset)
    a.copy_(torch.from_numpy(patterns.view(np.int16)).view(torch.bfloat16))
    return a


def cases() -> Iterator[Case]:
    """Every input that is compared; the reference is computed on the CPU."""
    inputs = [(name, _on_gpu(as_matrix(blocks, 1024))) for name, blocks in block_sets().items()]
    for M, K in TAILS:
        values = random_values(M, K, seed=M)
        inputs += [
            (f"{M}x{K}", _on_gpu(values)),
            (f"{M}x{K}, rows {K + 8} apart", _on_gpu(values, stride=K + 8)),
            (f"{M}x{K}, rows {K + 4} apart", _on_gpu(values, stride=K + 4)),
            (f"{M}x{K}, rows {K + 1} apart, misaligned", _on_gpu(values, stride=K + 1, offset=3)),
        ]
    for name, a in inputs:
        reference = quantize(a.cpu())
        yield Case(name, a, Mxfp4Tensor(reference.codes.cuda(), reference.scales.cuda()))


def mismatches(quantizer: Quantizer, case: Case) -> str:
    """What differs from the reference, or an empty string. Codes of a block with NaN mean nothing."""
    M, K = case.a.shape
    extents = padded_scale_shape(M, K // 32)
    outputs = [torch.full((size + 2 * GUARD,), 0xEE, dtype=torch.uint8, device="cuda")
               for size in (M * K // 2, extents[0] * extents[1])]  # fmt: skip
    codes, shuffled = (output[GUARD:-GUARD] for output in outputs)
    quantizer.launch(case.a, codes, shuffled)
    scales = unshuffle_scales(shuffled.view(extents), M, extents[1])
    compared = (case.reference.scales != NAN_BYTE).repeat_interleave(16, dim=1)
    wrong = {
        "codes": int(((codes.view(M, K // 2) != case.reference.codes) & compared).sum()),
        "scales": int((scales[:, : K // 32] != case.reference.scales).sum()),
        "pads": int((scales[:, K // 32 :] != 0).sum()),
        "outside": sum(int((part != 0xEE).sum()) for output in outputs for part in (output[:GUARD], output[-GUARD:])),
    }
    return ", ".join(f"{count} {name}" for name, count in wrong.items() if count)


def measure(launches: Sequence[Launch], set_bytes: int, gpu: Gpu) -> Timing:
    """Time of one launch; ``launches`` work on a copy each."""
    count = PROTOCOL.launches_per_sample(set_bytes, len(launches))
    for one in launches:
        one()
    gpu.synchronize()
    graph = gpu.capture([launches[i % len(launches)] for i in range(count)])
    return sample_until_sure(partial(gpu.replay_us, graph), PROTOCOL, count)


def copy_gbs(size: int, gpu: Gpu) -> tuple[float, float]:
    """GB/s, read and written, and microseconds of a device-to-device copy that moves ``size`` bytes in all."""
    count = PROTOCOL.copies(size, gpu.cache_bytes())
    pairs = [torch.empty(2, size // 2, dtype=torch.uint8, device="cuda").fill_(1) for _ in range(count)]
    timing = measure([partial(_copy, pair) for pair in pairs], size, gpu)
    return 2 * (size // 2) / timing.median_us * 1e-3, timing.median_us


def _copy(pair: torch.Tensor) -> None:
    pair[0].copy_(pair[1])


def time_size(M: int, K: int, quantizers: Sequence[Quantizer], gpu: Gpu, peak_gbs: float) -> list[dict[str, Any]]:
    """One row for each set of parameters."""
    extents = padded_scale_shape(M, K // 32)
    moved = 2 * M * K + M * K // 2 + M * K // 32  # bytes that a launch has to read and write
    a = torch.randn(M, K, device="cuda").to(torch.bfloat16)
    case = Case(f"{M}x{K}", a, quantize(a))
    sets = [
        (a.clone(), a.new_empty((M, K // 2), dtype=torch.uint8), a.new_empty(extents, dtype=torch.uint8))
        for _ in range(PROTOCOL.copies(moved, gpu.cache_bytes()))
    ]
    equal_gbs, equal_us = copy_gbs(moved, gpu)
    rows = []
    for quantizer in quantizers:
        wrong = mismatches(quantizer, case)
        timing = measure([partial(quantizer.launch, *one) for one in sets], moved, gpu)
        gbs = moved / timing.median_us * 1e-3
        rows.append({
            "M": M, "K": K, **quantizer.kernel.defines, "time_us": timing.median_us, "time_lo_us": timing.lo_us,
            "time_hi_us": timing.hi_us, "samples": timing.samples, "launches": timing.launches, "gbs": gbs,
            "of_copy": gbs / peak_gbs, "equal_copy_us": equal_us, "of_equal_copy": gbs / equal_gbs, "wrong": wrong,
            "protocol": timing.protocol,
        })  # fmt: skip
    return rows


def print_size(rows: Sequence[dict[str, Any]]) -> None:
    """The fastest sets of parameters and the slowest."""
    ordered = sorted(rows, key=lambda row: row["time_us"])
    print(f"{rows[0]['M']}x{rows[0]['K']}: a copy of as many bytes takes {rows[0]['equal_copy_us']:.2f} us")
    for row in [*ordered[:6], *([ordered[-1]] if len(ordered) > 6 else [])]:
        what = " ".join(f"{name[6:].lower()} {row[name]}" for name in row if name.startswith("QUANT_"))
        print(
            f"  {what:<32} {row['time_us']:9.2f} us [{row['time_lo_us']:.2f}, {row['time_hi_us']:.2f}] "
            f"{row['gbs']:7.0f} GB/s, {row['of_copy']:.3f} of the copy bandwidth, {row['of_equal_copy']:.3f} of the "
            f"equal copy{', WRONG: ' + row['wrong'] if row['wrong'] else ''}"
        )


def main(
    out: Annotated[Path | None, typer.Option(help="Folder of hip_quantize.json.")] = None,
    sizes: Annotated[str, typer.Option(help="Comma-separated MxK to time.")] = SIZES,
    parameters: Annotated[str, typer.Option(help="all or few.")] = "all",
    cubins: Annotated[Path | None, typer.Option(help="Folder that keeps builds.")] = None,
    build_only: Annotated[str | None, typer.Option(help="Build for this architecture and stop.")] = None,
) -> None:
    """Build, compare, time."""
    sets = FEW if parameters == "few" else tuple(product(THREADS, GROUPS, VECTORS))
    if build_only is None:
        required_gpu()
    folder = cubins or Path(tempfile.mkdtemp(prefix="mxfp4-tune-cubins-"))
    folder.mkdir(parents=True, exist_ok=True)
    arch = build_only or "sm_{}{}".format(*torch.cuda.get_device_capability())
    kernels = [hip_quantize_kernel(*one) for one in sets]
    start_s = time.monotonic()
    with ThreadPoolExecutor(os.cpu_count() or 2) as pool:
        paths = list(pool.map(lambda kernel: build(kernel, arch, folder), kernels))
    print(f"{len(paths)} cubins for {arch} in {time.monotonic() - start_s:.1f} s", flush=True)
    if build_only:
        return
    gpu, driver = Gpu(), Driver()
    print(gpu.origin(), PROTOCOL, sep="\n", flush=True)
    quantizers = [Quantizer(driver, one, driver.load(p.read_bytes())) for one, p in zip(kernels, paths, strict=True)]
    bad = compare_all(quantizers)
    before_gbs, _ = copy_gbs(2 * COPY_BYTES, gpu)
    print(f"copy of 1 GiB: {before_gbs:.0f} GB/s read and written", flush=True)
    rows: list[dict[str, Any]] = []
    for size in sizes.split(","):
        M, K = map(int, size.split("x"))
        rows += time_size(M, K, quantizers, gpu, before_gbs)
        print_size(rows[-len(quantizers) :])
    after_gbs, _ = copy_gbs(2 * COPY_BYTES, gpu)
    print(f"copy of 1 GiB afterwards: {after_gbs:.0f} GB/s")
    bad += [f"{row['M']}x{row['K']}: {row['wrong']}" for row in rows if row["wrong"]]
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        found = {"device": str(gpu.origin()), "torch": torch.__version__, "copy_gbs": [before_gbs, after_gbs],
                 "wrong": bad, "rows": rows}  # fmt: skip
        (out / "hip_quantize.json").write_text(json.dumps(found, indent=1))
    raise typer.Exit(1 if bad else 0)


def compare_all(quantizers: Sequence[Quantizer]) -> list[str]:
    """What is wrong in any case, printed too."""
    bad, elements, number = [], 0, 0
    for case in cases():
        number += 1
        for quantizer in quantizers:
            elements += case.a.numel()
            wrong = mismatches(quantizer, case)
            if wrong:
                bad.append(f"{quantizer}, {case.name}: {wrong}")
                print("WRONG", bad[-1], flush=True)
    print(f"{number} inputs, {len(quantizers)} sets of parameters, {elements} values: {len(bad)} wrong", flush=True)
    return bad


if __name__ == "__main__":
    with one_line_errors():
        typer.run(main)
