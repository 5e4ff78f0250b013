"""kernels.rocm.runtime: what is loaded where, and what an error says, on a stand-in for the runtime library."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_amdhip64 import INVALID_HANDLE, NO_BINARY, NO_DEVICE, NOT_FOUND, FakeHip

from kernels.errors import UnavailableError
from kernels.rocm.runtime import ArgumentBuffer, HipError, HipFunction, HipRuntime, mapped_library

IMAGE = b"\x7fELF" + bytes(range(60))


def test_a_function_is_found_in_the_code_object_and_described(hip: FakeHip) -> None:
    hip.state.device = 3
    function = HipRuntime(hip.library).load(IMAGE, "gemm")
    assert bytes(hip.state.image) == IMAGE
    assert hip.state.symbol == b"gemm"
    # The stand-in answers an attribute with ten times its number: registers 4, local memory 3, shared memory 1.
    assert function == HipFunction("gemm", 0x7000000101, 3, registers=40, scratch_bytes=30, lds_bytes=10)


def test_a_module_is_loaded_once_on_each_device(hip: FakeHip) -> None:
    runtime = HipRuntime(hip.library)
    first, again, other = (runtime.load(IMAGE, name) for name in ("f", "f", "g"))
    assert (first is again, hip.state.loaded) == (True, 1)
    assert other.name == "g"
    runtime.load(IMAGE[::-1], "f")
    assert hip.state.loaded == 2
    hip.state.device = 1
    assert runtime.load(IMAGE, "f").device == 1
    assert (hip.state.loaded, hip.state.unloaded) == (3, 0)


def test_a_launch_passes_grid_threads_stream_and_the_buffer(hip: FakeHip) -> None:
    runtime = HipRuntime(hip.library)
    launch = runtime.launcher(runtime.load(IMAGE, "f"), (33, 7, 2), 512)
    arguments = ArgumentBuffer(5)
    arguments.memory[:5] = b"\x01\x02\x03\x04\x05"
    launch(0x7F00DEADBEE0, arguments)
    assert hip.state.launches == 1
    assert (hip.last.function, hip.last.stream) == (0x7000000101, 0x7F00DEADBEE0)
    assert (list(hip.last.grid), list(hip.last.block), hip.last.shared_bytes) == ([33, 7, 2], [512, 1, 1], 0)
    assert (hip.arguments, hip.last.kernel_params) == (b"\x01\x02\x03\x04\x05", 0)


@pytest.mark.parametrize(
    "call, status, says",
    [
        ("hipGetDevice", NO_DEVICE, "hipGetDevice: hipErrorNoDevice (100): no ROCm-capable device is detected"),
        ("hipModuleLoadData", NO_BINARY, "hipModuleLoadData of the code object of f: hipErrorNoBinaryForGpu (209)"),
        ("hipModuleGetFunction", NOT_FOUND, "hipModuleGetFunction of f: hipErrorNotFound (500): said so"),
        ("hipFuncGetAttribute", 999, "hipFuncGetAttribute of f: unknown (999)"),
    ],
)
def test_what_fails_while_loading_is_named_and_tried_again(hip: FakeHip, call: str, status: int, says: str) -> None:
    runtime = HipRuntime(hip.library)
    hip.fail(call, status)
    with pytest.raises(HipError) as caught:
        runtime.load(IMAGE, "f")
    assert str(caught.value).startswith(says)
    assert "\n" not in str(caught.value)
    assert hip.state.loaded == hip.state.unloaded  # no module is left behind
    assert hip.state.last_error == 0  # nor an error that torch would find
    hip.fail("", 0)
    assert runtime.load(IMAGE, "f").name == "f"


def test_a_module_in_use_stays_when_another_symbol_is_missing(hip: FakeHip) -> None:
    runtime = HipRuntime(hip.library)
    runtime.load(IMAGE, "f")
    hip.fail("hipModuleGetFunction", NOT_FOUND)
    with pytest.raises(HipError, match="hipErrorNotFound"):
        runtime.load(IMAGE, "g")
    assert hip.state.unloaded == 0


def test_a_launch_that_fails_says_what_was_launched(hip: FakeHip) -> None:
    runtime = HipRuntime(hip.library)
    launch = runtime.launcher(runtime.load(IMAGE, "f"), (1, 2, 3), 256)
    hip.fail("hipModuleLaunchKernel", INVALID_HANDLE)  # what HIP says of a stream of another device
    with pytest.raises(HipError) as caught:
        launch(0x10, ArgumentBuffer(8))
    assert str(caught.value) == (
        "launch of f (grid (1, 2, 3), 256 threads): hipErrorInvalidHandle (400): invalid resource handle"
    )
    assert hip.state.last_error == 0


def test_the_library_is_the_one_that_the_process_has_mapped(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    line = "7f00-7f01 r-xp 00000000 08:01 1234  "
    maps.write_text(
        f"{line}/usr/lib/libc.so.6\n{line}/a b/libamdhip64.so.7\n{line}/a b/libamdhip64.so.7\n7f-7f rw-p 0 0 0\n"
    )
    assert mapped_library(maps) == Path("/a b/libamdhip64.so.7")
    maps.write_text(f"{line}/a/libamdhip64.so.7\n{line}/b/libamdhip64.so\n")
    with pytest.raises(UnavailableError, match=r"two HIP runtimes in this process, /a/libamdhip64\.so\.7 and /b"):
        mapped_library(maps)
    maps.write_text(f"{line}/usr/lib/libc.so.6\n")
    with pytest.raises(HipError, match="a torch that is built for ROCm"):
        mapped_library(maps)


def test_of_two_runtimes_the_one_that_torch_brought_counts(tmp_path: Path) -> None:
    maps, torch_folder = tmp_path / "maps", Path("/venv/site-packages/torch")
    line = "7f0000000000-7f0000001000 r-xp 00000000 08:01 1 "
    maps.write_text(f"{line}/opt/rocm/lib/libamdhip64.so.7\n{line}{torch_folder}/lib/libamdhip64.so\n")
    assert mapped_library(maps, torch_folder) == torch_folder / "lib/libamdhip64.so"
