"""Kernel descriptors, metadata and launches."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from snippets import kernel

from search.gfx950.simulator import SimulatedLaunch, SimulationError, load_assembly, simulate
from search.gfx950.simulator.kernel import parse_arguments, parse_descriptor
from search.gfx950.simulator.launch import pack_arguments

NOTES = """
    AMDGPU Metadata:
        ---
amdhsa.kernels:
  - .agpr_count:     0
    .args:
      - .address_space:  global
        .offset:         0
        .size:           8
        .value_kind:     global_buffer
      - .name:           n
        .offset:         8
        .size:           4
        .value_kind:     by_value
      - .offset:         16
        .size:           4
        .value_kind:     hidden_block_count_x
    .group_segment_fixed_size: 0
    .name:           first
  - .args:
      - .offset:         0
        .size:           4
        .value_kind:     by_value
    .name:           second
...
"""


def test_arguments_of_each_kernel_in_the_metadata() -> None:
    first, second = parse_arguments(NOTES, "first"), parse_arguments(NOTES, "second")
    assert [(a.offset, a.size, a.kind, a.name) for a in first] == [
        (0, 8, "global_buffer", ""), (8, 4, "by_value", "n"), (16, 4, "hidden_block_count_x", ""),
    ]  # fmt: skip
    assert [(a.offset, a.size) for a in second] == [(0, 4)]
    assert parse_arguments(NOTES, "by hand") == first


def test_damaged_metadata_is_an_error() -> None:
    with pytest.raises(SimulationError, match="the metadata of k cannot be read"):
        parse_arguments("---\namdhsa.kernels: [\n...", "k")


def test_descriptor_bits() -> None:
    raw = bytearray(64)
    struct.pack_into("<III", raw, 0, 1024, 16, 320)
    struct.pack_into("<I", raw, 52, 1 << 7 | 1 << 9)  # workgroup id x and z
    struct.pack_into("<HH", raw, 56, 1 << 1 | 1 << 3, 8 | 2 << 7)  # dispatch pointer, kernarg pointer; preload 8 from 2
    descriptor = parse_descriptor(bytes(raw))
    assert descriptor.user_sgprs == (("dispatch_ptr", 2), ("kernarg_segment_ptr", 2))
    assert (descriptor.preload_sgprs, descriptor.preload_offset) == (8, 2)
    assert descriptor.workgroup_ids == (True, False, True)
    assert (descriptor.lds_bytes, descriptor.scratch_bytes, descriptor.kernarg_bytes) == (1024, 16, 320)


def test_a_short_descriptor_is_an_error() -> None:
    with pytest.raises(SimulationError, match="64 bytes"):
        parse_descriptor(b"\0" * 8)


def test_arguments_are_packed_by_position_when_the_metadata_has_no_names() -> None:
    subject = kernel("s_endpgm", arguments="pointer value value", kernarg_bytes=16)
    launch = SimulatedLaunch({"x": np.zeros(4, np.uint8), "m": -1, "alpha": 1.5}, (1, 1, 1), (64, 1, 1))
    packed = pack_arguments(subject, launch, {"x": 0x123456789A})
    assert packed == struct.pack("<Qif", 0x123456789A, -1, 1.5)


def test_too_many_arguments_are_an_error() -> None:
    launch = SimulatedLaunch({"x": np.zeros(4, np.uint8), "m": 1, "n": 2}, (1, 1, 1), (64, 1, 1))
    with pytest.raises(SimulationError, match="takes 2 arguments, 3 given"):
        simulate(kernel("s_endpgm"), launch)


def test_an_array_where_a_number_belongs_is_an_error() -> None:
    launch = SimulatedLaunch({"x": np.zeros(4, np.uint8), "m": np.zeros(4, np.uint8)}, (1, 1, 1), (64, 1, 1))
    with pytest.raises(SimulationError, match="argument m is an array"):
        simulate(kernel("s_endpgm"), launch)


def test_too_much_lds_is_an_error() -> None:
    launch = SimulatedLaunch({"x": np.zeros(4, np.uint8), "m": 1}, (1, 1, 1), (64, 1, 1), dynamic_lds_bytes=200_000)
    with pytest.raises(SimulationError, match="200000 bytes of LDS"):
        simulate(kernel("s_endpgm"), launch)


def test_a_strided_array_is_an_error() -> None:
    launch = SimulatedLaunch({"x": np.zeros((4, 4), np.uint8)[:, :2], "m": 1}, (1, 1, 1), (64, 1, 1))
    with pytest.raises(SimulationError, match="not C-contiguous"):
        simulate(kernel("s_endpgm"), launch)


def test_text_without_a_kernel_is_an_error() -> None:
    with pytest.raises(SimulationError, match=r"no \.amdhsa_kernel"):
        load_assembly("nothing here")


def test_work_item_ids_are_packed_in_v0() -> None:
    body = """
    s_load_dwordx2 s[4:5], s[0:1], 0x0
    v_and_b32_e32 v1, 0x3ff, v0
    v_bfe_u32 v2, v0, 10, 10
    v_lshl_add_u32 v1, v2, 4, v1
    v_lshlrev_b32_e32 v1, 2, v1
    s_waitcnt lgkmcnt(0)
    global_store_dword v1, v0, s[4:5]
    s_endpgm
    """
    out = np.zeros((8, 16), np.uint32)
    simulate(kernel(body), SimulatedLaunch({"x": out, "n": 0}, (1, 1, 1), (16, 8, 1)))
    assert np.array_equal(out, np.arange(16)[None, :] | np.arange(8)[:, None] << 10)
