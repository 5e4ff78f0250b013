"""kernels/hip/quantize.hip: its gfx950 code, executed on the simulator, against the quantiser in torch."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from installed_hip import needs_compiler
from quantize_inputs import NEIGHBOURS, as_matrix, every_amax, every_pattern_among, every_scale_and_value
from quantize_inputs import random_values as values

from kernels.families.stages import GROUPS, SOURCE, SYMBOL, THREADS, VECTORS, hip_quantize_call, hip_quantize_kernel
from kernels.launches.native import HipKernel
from kernels.mxfp4.layouts import padded_scale_shape, unshuffle_scales
from kernels.mxfp4.numerics import Mxfp4Tensor, quantize
from kernels.rocm.compiler import SOURCES, compile_hip
from search.gfx950.simulator import DecodedKernel, SimulatedLaunch, SimulationResult, load_assembly, simulate

UNTOUCHED = 0xAB
PATHS = ("hardware", "portable")
TAILS = ((1, 64), (17, 448), (33, 576), (65, 320))  # rows and columns that fill no tile


pytestmark = needs_compiler


@functools.cache
def built(threads: int, groups: int, vector: int, path: str) -> tuple[HipKernel, str, DecodedKernel]:
    """The kernel, its assembly, and the same decoded."""
    kernel = hip_quantize_kernel(threads, groups, vector)
    if path == "portable":
        kernel = dataclasses.replace(kernel, defines={**kernel.defines, "MXFP4_PORTABLE": 1})
    assembly = compile_hip(kernel).assembly
    return kernel, assembly, load_assembly(assembly, SYMBOL)


@dataclasses.dataclass(frozen=True, eq=False)
class Outputs:
    """What a launch wrote: codes [M, K//2], scales [M, padded groups] in natural order, and what it was executed as."""

    codes: torch.Tensor
    scales: torch.Tensor
    result: SimulationResult


def launch(
    parameters: tuple[int, int, int], path: str, storage: Any, extents: tuple[int, int], stride: int, *,
    offset: int = 0, workgroups: range | None = None, fill: int = UNTOUCHED,
) -> tuple[Any, Any, SimulationResult]:  # fmt: skip
    """Run the kernel on rows of ``storage``; packed codes, shuffled scales, and what was executed.

    Args:
        parameters: Threads, groups, vector.
        path: One of ``PATHS``.
        storage: uint16 that holds A.
        extents: M, K.
        stride: Elements from row to row.
        offset: Element of ``storage`` where A starts.
        workgroups: Only those that these rows need.
        fill: The bytes of the outputs before.
    """
    kernel, _, code = built(*parameters, path)
    M, K = extents
    # Zeros are not touched until written, so that an output of gigabytes costs nothing.
    codes, scales = (np.zeros(shape, np.uint8) for shape in ((M, K // 2), padded_scale_shape(M, K // 32)))
    if fill:
        codes[...] = scales[...] = fill
    call = hip_quantize_call(M, K, kernel, stride_am=stride)
    arrays = {"a_ptr": storage, "codes_ptr": codes, "scale_ptr": scales}
    integers = {name: value for name, value in call.args.items() if isinstance(value, int)}

    def pack(addresses: Mapping[str, int]) -> bytes:
        places = {name: addresses[name] for name in arrays}
        return kernel.pack({**places, **integers, "a_ptr": places["a_ptr"] + 2 * offset})

    chosen = None if workgroups is None else call.coverage.workgroups(workgroups, range(1))
    result = simulate(code, SimulatedLaunch(arrays, call.grid, (kernel.threads, 1, 1), pack=pack), chosen)
    assert result.clean, result.findings
    return codes, scales, result


def execute(
    parameters: tuple[int, int, int], path: str, a: Any, *,
    stride: int | None = None, offset: int = 0, workgroups: range | None = None,
) -> Outputs:  # fmt: skip
    """Run the kernel on ``a`` [M, K], with rows ``stride`` apart in NaNs that start ``offset`` elements before."""
    M, K = a.shape
    stride = K if stride is None else stride
    storage = np.full(offset + M * stride, 0x7FFF, np.uint16)
    np.lib.stride_tricks.as_strided(storage[offset:], (M, K), (2 * stride, 2))[...] = a
    codes, scales, result = launch(parameters, path, storage, (M, K), stride, offset=offset, workgroups=workgroups)
    natural = unshuffle_scales(torch.from_numpy(scales), *scales.shape)
    assert set(np.unique(natural[M:].numpy())) <= {0, UNTOUCHED}  # rows that do not exist
    return Outputs(torch.from_numpy(codes), natural[:M], result)


def quantized(a: Any) -> Mxfp4Tensor:
    """What torch makes of these bits."""
    return quantize(torch.from_numpy(a.view(np.int16)).view(torch.bfloat16))


def check(parameters: tuple[int, int, int], path: str, a: Any, **options: Any) -> Outputs:
    """Compare with the reference; codes of a block with NaN mean nothing."""
    outputs = execute(parameters, path, a, **options)
    reference = quantized(a)
    groups = a.shape[1] // 32
    assert torch.equal(outputs.scales[:, :groups], reference.scales)
    assert not outputs.scales[:, groups:].any()
    number = (reference.scales != 255).repeat_interleave(16, dim=1)
    assert torch.equal(outputs.codes[number], reference.codes[number])
    return outputs


@pytest.mark.parametrize("path", PATHS)
def test_every_magnitude_makes_the_scale_of_its_block(path: str) -> None:
    check((256, 1, 32), path, as_matrix(every_amax(), 4096))


@pytest.mark.parametrize("path", PATHS)
def test_every_value_rounds_right_under_every_scale(path: str) -> None:
    check((256, 2, 8), path, as_matrix(every_scale_and_value(), 1024))


@pytest.mark.parametrize("path", PATHS)
def test_all_bit_patterns_among_zeros_subnormals_huge_values_and_infinities(path: str) -> None:
    blocks = np.concatenate([every_pattern_among(value) for value in NEIGHBOURS])
    check((256, 4, 8), path, as_matrix(blocks, 1024))


@pytest.mark.parametrize("path", PATHS)
def test_hand_computed_blocks(path: str) -> None:
    # Values of bf16 patterns: 3F80 is 1, 3FE0 1.75, 4040 3, 40C0 6, 3E80 .25, 3F40 .75; 0060 is 96 * 2**-133.
    a = np.zeros((1, 192), np.uint16)
    a[0, :8] = 0x40C0, 0x3E80, 0x3F40, 0x3FA0, 0x3FE0, 0x4020, 0xC060, 0x40A0  # 6 .25 .75 1.25 1.75 2.5 -3.5 5
    a[0, 32:34] = 0x0060, 0x8001  # scale 2**-127: 96 / 64 = 1.5; -1 / 64
    a[0, 64:66] = 0x7F80, 0x3F80  # Inf
    a[0, 96:98] = 0x7FC0, 0x3F80  # NaN
    a[0, 128:130] = 0x8000, 0x3FE0  # 1.75 rounds its scale up: 2**(1 - 2)
    a[0, 160] = 0x8000
    outputs = execute((64, 1, 8), path, a)
    assert outputs.scales[0].tolist() == [127, 0, 254, 255, 126, 0, 0, 0]
    assert outputs.codes[0, :4].tolist() == [0x07, 0x22, 0x44, 0x6E]  # 6 0, 1 1, 2 2, -4 4: ties to even
    assert outputs.codes[0, 16].item() == 0x83
    assert outputs.codes[0, 32].item() == 0x07
    assert outputs.codes[0, 64].item() == 0x68
    assert outputs.codes[0, 80:].tolist() == [0x08, *[0] * 15]


@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize("groups", GROUPS)
def test_all_parameters_with_tails(groups: int, vector: int) -> None:
    for threads, (M, K) in zip(THREADS, itertools.cycle(TAILS), strict=False):
        check((threads, groups, vector), "hardware", values(M, K, seed=M))


@pytest.mark.parametrize("vector", VECTORS)
@pytest.mark.parametrize("groups", GROUPS)
def test_the_portable_path_with_tails(groups: int, vector: int) -> None:
    for M, K in TAILS[2:]:
        check((128, groups, vector), "portable", values(M, K, seed=M))


@pytest.mark.parametrize("extra, offset", [(8, 0), (1, 3), (64, 5)])
@pytest.mark.parametrize("vector", VECTORS)
def test_strided_rows_at_any_address(vector: int, extra: int, offset: int) -> None:
    check((256, 2, vector), "hardware", values(35, 320, seed=1), stride=320 + extra, offset=offset)


@pytest.mark.parametrize("groups", GROUPS)
def test_a_region_needs_the_workgroups_that_its_coverage_names(groups: int) -> None:
    rows = range(42, 50)  # across the middle of 32
    a = values(150, 576, seed=5)
    some = execute((64, groups, 8), "hardware", a, workgroups=rows)
    every = execute((64, groups, 8), "hardware", a)
    assert torch.equal(some.codes[rows.start : rows.stop], every.codes[rows.start : rows.stop])
    assert torch.equal(some.scales[rows.start : rows.stop], every.scales[rows.start : rows.stop])
    assert len(some.result.workgroups) < len(every.result.workgroups) / 3
    assert (some.codes[:32] == UNTOUCHED).all()
    assert (some.codes[64:] == UNTOUCHED).all()


def test_codes_beyond_four_gigabytes() -> None:
    row, M = values(1, 64, seed=7), (1 << 27) + 3  # all rows in one place; 2**32 + 96 bytes of codes
    last = range(M - 1, M)
    codes, scales, _ = launch((256, 1, 8), "hardware", row, (M, 64), stride=0, workgroups=last, fill=0)
    assert codes[M - 3 :].tolist() == quantized(row).codes.expand(3, -1).tolist()
    assert scales[-256:].any()
    assert not codes[:64].any()
    assert not scales[:32].any()


def test_rows_of_a_beyond_four_billion_elements(tmp_path: Path) -> None:
    stride = (1 << 31) - 8
    a = np.memmap(tmp_path / "a", np.uint16, "w+", shape=(3 * stride + 64,))  # 13 GB, of which two pages exist
    a[-64:] = values(1, 64, seed=8)
    codes, _, _ = launch((64, 1, 8), "hardware", a, (4, 64), stride)
    assert codes[3].tolist() == quantized(np.asarray(a[-64:])).codes.tolist()


@pytest.mark.parametrize("groups", GROUPS)
def test_blocks_are_read_by_wide_loads_and_converted_by_the_hardware(groups: int) -> None:
    _, assembly, _ = built(256, groups, 8, "hardware")
    assert re.findall(r"^\s*((?:global|flat|buffer)_load_\w+)", assembly, re.M) == ["global_load_dwordx4"] * groups
    assert assembly.count("v_cvt_scalef32_pk_fp4_bf16") == 4 * groups
    assert "scratch_" not in assembly
    stores = re.findall(r"^\s*(global_store_\w+)", assembly, re.M)
    assert stores == ["global_store_dword"] * groups + [
        {1: "global_store_byte", 2: "global_store_short", 4: "global_store_dword"}[groups]
    ]
    _, portable, _ = built(256, groups, 8, "portable")
    assert "v_cvt_scalef32" not in portable


def test_another_amd_gpu_gets_integer_arithmetic() -> None:
    assembly = compile_hip(hip_quantize_kernel(256, 1, 8), "gfx942").assembly
    assert "v_cvt_scalef32" not in assembly


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
def test_nvcc_builds_the_same_source(tmp_path: Path) -> None:
    defines = [f"-D{name}={value}" for name, value in hip_quantize_kernel(256, 4, 8).defines.items()]
    command = ["nvcc", "-x", "cu", "-arch=sm_90", "-std=c++17", "-ptx", *defines, str(SOURCES / SOURCE)]
    done = subprocess.run([*command, "-o", str(tmp_path / "q.ptx")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    assert ".entry mxfp4_quantize" in (tmp_path / "q.ptx").read_text()


@pytest.mark.parametrize("parameters", [(96, 1, 8), (64, 3, 8), (64, 1, 5)])
def test_parameters_that_do_not_exist(parameters: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="is none of"):
        hip_quantize_kernel(*parameters)


@pytest.mark.parametrize("M, K", [(0, 64), (1, 0), (1, 96)])
def test_extents_that_cannot_be_quantised(M: int, K: int) -> None:
    with pytest.raises(ValueError, match="cannot quantise"):
        hip_quantize_call(M, K, hip_quantize_kernel(64, 1, 8))
