"""kernels: the argument buffer against what a C compiler lays out, and against offsets written by hand."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kernels.errors import InputError
from kernels.families.stages import hip_quantize_kernel
from kernels.launches.native import ArgumentType, HipKernel, PrebuiltKernel
from kernels.rocm.compiler import compile_hip

C_TYPES = {"ptr": ctypes.c_void_p, "i32": ctypes.c_int32}
NUMBERS = {"ptr": st.integers(1, 2**63), "i32": st.integers(-(2**31), 2**31 - 1)}


def hip_kernel(**types: ArgumentType) -> HipKernel:
    return HipKernel("k", tuple(types), 256, "k.hip", {}, tuple(types.values()))


@given(st.data(), st.lists(st.sampled_from(["ptr", "i32"]), min_size=1, max_size=12))
def test_arguments_lie_where_c_puts_the_members_of_a_structure(data: st.DataObject, kinds: list[ArgumentType]) -> None:
    names = tuple(f"x{i}" for i in range(len(kinds)))
    values = {name: data.draw(NUMBERS[kind]) for name, kind in zip(names, kinds, strict=True)}
    members = [(name, C_TYPES[kind]) for name, kind in zip(names, kinds, strict=True)]
    as_in_c = type("Arguments", (ctypes.Structure,), {"_fields_": members})(**values)
    packed = HipKernel("k", names, 256, "k.hip", {}, tuple(kinds)).pack(values)
    end = max(getattr(type(as_in_c), name).offset + ctypes.sizeof(C_TYPES[kind]) for name, kind in members_of(as_in_c))
    assert packed == bytes(as_in_c)[:end]  # without the padding at the end, which no kernel reads


def members_of(structure: ctypes.Structure) -> list[tuple[str, ArgumentType]]:
    kinds: dict[object, ArgumentType] = {ctypes.c_void_p: "ptr", ctypes.c_int32: "i32"}
    return [(member[0], kinds[member[1]]) for member in structure._fields_]


def test_a_pointer_after_an_integer_starts_at_its_own_multiple() -> None:
    packed = hip_kernel(M="i32", out_ptr="ptr", N="i32").pack({"M": -2, "out_ptr": 0x1122334455667788, "N": 7})
    assert packed.hex() == "feffffff00000000887766554433221107000000"


def test_fields_of_a_prebuilt_kernel_lie_at_their_offsets_with_zero_between() -> None:
    fields = (("alpha", "f", 16), ("a", "Q", 0), ("K", "I", 24))
    kernel = PrebuiltKernel("k", ("K", "a"), 256, Path("k.co"), fields, {"alpha": 1.0}, 32)
    expected = bytearray(32)
    expected[0:8], expected[16:20], expected[24:28] = b"\x05" + bytes(7), struct.pack("<f", 1.0), b"\x00\x02\x00\x00"
    assert kernel.pack({"a": 5, "K": 512}) == bytes(expected)


def gemm_kernel() -> HipKernel:
    config = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 256, "WAVES_M": 2, "WAVES_N": 1, "NUM_STAGES": 2, "MFMA": 16}
    pointers = ("codes", "a_scale", "b", "b_scale", "out")
    integers = ("M", "N", "K", "stride_om", "split_k", "GROUP_M", "num_xcds")
    types: tuple[ArgumentType, ...] = ("ptr",) * 5 + ("i32",) * 7
    return HipKernel("mxfp4_gemm", pointers + integers, 128, "gemm.hip", {**config, "STORE": 0}, types)


@pytest.mark.parametrize("kernel", [hip_quantize_kernel(256, 1, 8), gemm_kernel()], ids=lambda kernel: kernel.name)
def test_the_compiler_expects_the_arguments_where_they_are_packed(kernel: HipKernel) -> None:
    try:
        assembly = compile_hip(kernel).assembly
    except InputError as error:
        pytest.skip(str(error))
    text = assembly.partition(".amdgpu_metadata")[2].partition(".end_amdgpu_metadata")[0]
    [metadata] = yaml.safe_load(text.rstrip())["amdhsa.kernels"]
    assert metadata[".name"] == kernel.name
    assert metadata[".max_flat_workgroup_size"] == kernel.threads
    explicit = [one for one in metadata[".args"] if not one[".value_kind"].startswith("hidden_")]
    sizes = {"global_buffer": 8, "by_value": 4}
    assert [sizes[one[".value_kind"]] for one in explicit] == [one[".size"] for one in explicit]
    expected = bytearray(kernel.packer().layout.size)
    for number, one in enumerate(explicit, start=1):
        expected[one[".offset"]] = number
    assert kernel.pack({name: i for i, name in enumerate(kernel.arg_names, start=1)}) == bytes(expected)


@pytest.mark.parametrize("values", [{"M": 1}, {"M": 1, "x_ptr": 0, "N": 3}])
def test_missing_and_unknown_arguments_are_named(values: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="x_ptr" if "x_ptr" not in values else "N"):
        hip_kernel(x_ptr="ptr", M="i32").pack(values)


@pytest.mark.parametrize("values", [{"x_ptr": -1, "M": 1}, {"x_ptr": 0, "M": 2**31}])
def test_a_value_that_does_not_fit_is_refused(values: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        hip_kernel(x_ptr="ptr", M="i32").pack(values)


@pytest.mark.parametrize(
    "fields, constants, size, reason",
    [
        ((("a", "Q", 0), ("b", "Q", 4)), {}, 16, "overlap at byte 4"),
        ((("a", "Q", 0), ("b", "Q", 8)), {}, 15, "end at byte 16"),
        ((("a", "Q", 0),), {}, 16, "one each"),
        ((("a", "Q", 0), ("b", "Q", 8)), {"b": 1}, 16, "one each"),
    ],
)
def test_a_buffer_that_cannot_be_is_refused(
    fields: tuple[tuple[str, str, int], ...], constants: dict[str, int], size: int, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        PrebuiltKernel("k", ("a", "b"), 256, Path("k.co"), fields, constants, size).packer()
