"""kernels.rocm.loader: what a launch of each native kernel passes to the HIP runtime, byte by byte."""

from __future__ import annotations

import ctypes
import re
import struct
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from fake_amdhip64 import NO_DEVICE, FakeHip

from kernels.errors import InputError
from kernels.launches.code_object import launch_grid, prebuilt_kernel
from kernels.launches.coverage import TileCoverage
from kernels.launches.native import HipKernel, PrebuiltKernel
from kernels.launches.program import KernelCall, PointerSpec
from kernels.problem import GemmShape
from kernels.rocm import loader as native_runner
from kernels.rocm import runtime as hip_runtime
from kernels.rocm.cache import HipCache
from kernels.rocm.code_objects import CodeObject, find_catalogue
from kernels.rocm.runtime import ArgumentBuffer, HipError, HipRuntime
from kernels.rocm.toolchain import llvm_tool
from kernels.runtime.planner import UNBUILDABLE
from kernels.runtime.runner import make_runner, run_call
from kernels.triton import interpreter

STREAM = 0x5EA000
READELF = llvm_tool("llvm-readelf")
ADDRESSES = {"out": 0x7F0000001000, "a": 0x7F0000002000, "b": 0x7F0000003000, "a_scale": 0x7F0000004000,
             "b_scale": 0x7F0000005000}  # fmt: skip
SOURCE = "k:" + 62 * "x"  # as long as the image that the stand-in keeps
KERNEL = HipKernel("k", ("x_ptr", "M", "out_ptr", "N"), 128, "k.hip", {"FACTOR": 3}, ("ptr", "i32", "ptr", "i32"))


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HipCache:
    """A cache whose compiler is a line of shell: the code object is the text of the source."""
    program = tmp_path / "clang"
    program.write_text(
        "#!/bin/sh\n"
        "case $1 in --version) echo clang version 20.0.0;; --print-targets) echo amdgcn;;\n"
        "*) [ -f k.hip ] && cp k.hip kernel.s || cp kernel.s kernel.co;; esac\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("MXFP4_HIP_COMPILER", str(program))
    (tmp_path / "k.hip").write_text(SOURCE)
    return HipCache(tmp_path / "cache", tmp_path)


def stream_of(device: int) -> int:
    return STREAM + device


def catalogue_objects() -> list[CodeObject]:
    try:
        return list(find_catalogue().preshuffled)
    except InputError:
        return []


def test_a_hip_kernel_is_launched_with_its_arguments_in_c_layout(hip: FakeHip, builds: HipCache) -> None:
    hip.state.device = 2
    run, _ = native_runner.native_runner(KERNEL, (5, 4, 3), HipRuntime(hip.library), builds, stream_of)
    assert bytes(hip.state.image) == SOURCE.encode()
    run(0x1122334455667788, 7, 0xAA00000000, -1)
    # Written by hand: the second pointer starts at 16, the integer before it is followed by four bytes of nothing.
    assert hip.arguments == bytes.fromhex("8877665544332211 07000000 00000000 00000000aa000000 ffffffff")
    assert (list(hip.last.grid), list(hip.last.block), hip.last.shared_bytes) == ([5, 4, 3], [128, 1, 1], 0)
    assert (hip.last.stream, hip.last.device, hip.last.function) == (STREAM + 2, 2, 0x7000000101)


@pytest.mark.skipif(not catalogue_objects(), reason="no AITER: set MXFP4_AITER")
@pytest.mark.parametrize(
    "one, log2_k_split",
    [pytest.param(one, log2, id=f"{one}-{log2}") for one in catalogue_objects() for log2 in (0, 2)[: 1 + one.splits_k]],
)
def test_each_code_object_is_launched_as_aiter_launches_it(hip: FakeHip, one: CodeObject, log2_k_split: int) -> None:
    shape = GemmShape(one.tile_m + 1, 2 * one.tile_n, 2304)
    kernel = prebuilt_kernel(one, shape, log2_k_split)
    grid = launch_grid(shape, one, log2_k_split)
    run, _ = native_runner.native_runner(kernel, grid, HipRuntime(hip.library), None, stream_of)
    assert bytes(hip.state.image) == one.path.read_bytes()[:64]
    assert hip.state.symbol.decode() == one.symbol
    run(*(ADDRESSES[name] for name in kernel.arg_names))
    # 2304 elements of K: four slices would be 576 each, rounded up to 768, so three are left.
    assert list(hip.last.grid) == [2, 2, 3 if log2_k_split else 1]
    assert (list(hip.last.block), hip.last.stream) == ([256, 1, 1], STREAM)
    assert hip.arguments == aiter_arguments(shape, log2_k_split)


@pytest.mark.skipif(not catalogue_objects() or READELF is None, reason="no AITER (set MXFP4_AITER) or no llvm-readelf")
def test_all_memory_that_hip_reads_for_a_code_object_is_the_launchers() -> None:
    for one in catalogue_objects():
        notes = subprocess.run([str(READELF), "--notes", one.path], capture_output=True, text=True, check=True).stdout
        [declared] = map(int, re.findall(r"\.kernarg_segment_size: (\d+)", notes))
        size = prebuilt_kernel(one, GemmShape(64, 512, 512)).size
        assert size == 372
        assert ctypes.sizeof(ArgumentBuffer(size).memory) >= declared


def aiter_arguments(shape: GemmShape, log2_k_split: int) -> bytes:
    """Buffer of AITER's ``asm_gemm_a4w4``, written down slot by slot: 16 bytes each, the last one of 4."""
    M, N, K, scale_stride = shape.M, shape.N, shape.K, 72  # 2304 / 32 scales in a row, a multiple of 8
    slots = [
        struct.pack("<Q", ADDRESSES["out"]), b"", struct.pack("<Q", ADDRESSES["a"]), struct.pack("<Q", ADDRESSES["b"]),
        struct.pack("<f", 1.0), b"", b"", b"", struct.pack("<I", N), b"", struct.pack("<I", K), b"",
        struct.pack("<I", K), b"", struct.pack("<I", M), struct.pack("<I", N), struct.pack("<I", K),
        struct.pack("<Q", ADDRESSES["a_scale"]), struct.pack("<Q", ADDRESSES["b_scale"]),
        struct.pack("<I", scale_stride), b"", struct.pack("<I", scale_stride), b"",
    ]  # fmt: skip
    return b"".join(slot.ljust(16, b"\0") for slot in slots) + struct.pack("<i", log2_k_split)


def test_every_launch_goes_to_the_stream_that_is_current_then(hip: FakeHip, builds: HipCache) -> None:
    streams = iter([11, 22])
    run, _ = native_runner.native_runner(
        KERNEL, (1, 1, 1), HipRuntime(hip.library), builds, lambda device: next(streams)
    )
    run(1, 2, 3, 4)
    assert hip.last.stream == 11
    run(1, 2, 3, 4)
    assert hip.last.stream == 22


def test_a_launch_does_nothing_but_launch(hip: FakeHip, builds: HipCache, monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = native_runner.native_runner(KERNEL, (1, 1, 1), HipRuntime(hip.library), builds, stream_of)
    hip.fail("hipGetDevice", NO_DEVICE)  # were it asked again, or anything loaded, a capture would be broken
    monkeypatch.setenv("MXFP4_HIP_COMPILER", "gone")
    run(1, 2, 3, 4)
    assert (hip.state.launches, hip.state.loaded) == (1, 1)


def test_threads_that_share_a_runner_do_not_mix_their_arguments(hip: FakeHip, builds: HipCache) -> None:
    run, _ = native_runner.native_runner(KERNEL, (1, 1, 1), HipRuntime(hip.library), builds, stream_of)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda i: run(i, i, i, i), range(64)))
    passed = [struct.unpack("<Qi4xQi", bytes(one.arguments[:28])) for one in hip.state.launch[:64]]
    assert hip.state.launches == 64
    assert all(len(set(values)) == 1 for values in passed)


@pytest.mark.parametrize("values", [(1, 2, 3), (1, 2, 3, 4, 5), (1, 2**31, 3, 4), (-1, 2, 3, 4)])
def test_values_that_do_not_fit_are_refused_and_nothing_is_launched(
    hip: FakeHip, builds: HipCache, values: tuple[int, ...]
) -> None:
    run, _ = native_runner.native_runner(KERNEL, (1, 1, 1), HipRuntime(hip.library), builds, stream_of)
    with pytest.raises(ValueError, match="k: arguments"):
        run(*values)
    assert hip.state.launches == 0


def test_a_code_object_that_is_gone_is_named(hip: FakeHip, tmp_path: Path) -> None:
    kernel = PrebuiltKernel("k", (), 256, tmp_path / "gone.co")
    with pytest.raises(InputError, match=r"gone\.co: No such file or directory; reinstall AITER"):
        native_runner.native_runner(kernel, (1, 1, 1), HipRuntime(hip.library), None, stream_of)


CALL = KernelCall(KERNEL, (2, 1, 1), {"x_ptr": "x", "M": 7, "out_ptr": "out", "N": 9}, {}, TileCoverage(16, 16, 16, 16))


@pytest.fixture
def on_the_fake(hip: FakeHip, builds: HipCache, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHip]:
    """The product's own defaults, with the stand-in as the process's runtime."""
    runtime = HipRuntime(hip.library)
    monkeypatch.setattr(native_runner, "hip_runtime", lambda: runtime)
    monkeypatch.setattr(native_runner, "HipCache", lambda: builds)
    driver = type("Driver", (), {"get_current_stream": staticmethod(stream_of)})
    monkeypatch.setattr(native_runner.triton.runtime.driver, "_active", driver)
    yield hip


def test_a_plan_launches_a_native_kernel_as_any_other(on_the_fake: FakeHip) -> None:
    spec = PointerSpec(torch.uint8, 64, aligned=True)
    run = make_runner(CALL, {"x": spec, "out": spec})
    run(0x100, 7, 0x200, 9)
    assert struct.unpack("<Qi4xQi", on_the_fake.arguments) == (0x100, 7, 0x200, 9)
    assert on_the_fake.last.stream == STREAM


def test_a_program_on_tensors_passes_their_addresses(on_the_fake: FakeHip) -> None:
    tensors = {name: torch.zeros(64, dtype=torch.uint8) for name in ("x", "out")}
    run_call(CALL, tensors)
    x, out = (tensors[name].data_ptr() for name in ("x", "out"))
    assert struct.unpack("<Qi4xQi", on_the_fake.arguments) == (x, 7, out, 9)


def test_a_loaded_kernel_reports_what_the_runtime_says_that_it_needs(on_the_fake: FakeHip) -> None:
    loaded = KERNEL.load(CALL, {})
    _, function = native_runner.native_runner(KERNEL, (1, 1, 1))
    assert loaded.registers == function.registers
    assert (loaded.spills, loaded.lds_bytes) == (function.scratch_bytes // 4, function.lds_bytes)


def test_without_rocm_the_error_says_what_torch_is_needed() -> None:
    if torch.version.hip:
        pytest.skip("this torch is built for ROCm")
    with pytest.raises(HipError, match="ROCm"):
        make_runner(CALL, {})


def test_a_build_that_fails_lets_the_planner_choose_another_kernel(
    on_the_fake: FakeHip, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MXFP4_HIP_COMPILER", "gone")
    with pytest.raises(UNBUILDABLE, match="MXFP4_HIP_COMPILER=gone"):
        make_runner(CALL, {})


def test_the_interpreter_refuses_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "interpreting", lambda: True)
    with pytest.raises(RuntimeError, match="k is machine code"):
        make_runner(CALL, {})


def test_the_runtime_is_that_of_the_process(hip: FakeHip, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hip_runtime, "mapped_library", lambda: hip.library)
    hip_runtime.hip_runtime.cache_clear()
    assert hip_runtime.hip_runtime() is hip_runtime.hip_runtime()
    assert hip_runtime.hip_runtime().device() == 0
    hip_runtime.hip_runtime.cache_clear()
