"""A plan of the native families on a stand-in of the HIP runtime: every launch of a product, as HIP receives it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_amdhip64 import FakeHip

from kernels.errors import InputError
from kernels.families.staged_ck import StagedCkConfig
from kernels.families.staged_hip import StagedHipConfig
from kernels.problem import GemmShape
from kernels.rocm import loader as native_runner
from kernels.rocm.cache import HipCache
from kernels.rocm.code_objects import find_catalogue
from kernels.rocm.runtime import HipRuntime
from kernels.runtime.plan import Inputs, Plan, build_plan
from kernels.runtime.runner import make_runner

# Megabytes apart, so that an address tells its tensor. The workspace: codes [33, 256] = 8448 bytes at 0 (33 times
# 256, aligned already), then the scales [256, 16].
A, B, B_SCALE, OUT, WORK = (0x7F00_0000_0000 + (i << 20) for i in range(1, 6))
CODES, SCALES = WORK, WORK + 8448
SHAPE = GemmShape(33, 512, 512)
STRIDE_AM = 640


@pytest.fixture
def hip(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHip]:
    """The product with its own defaults, but for the runtime, Triton's driver, and a compiler that does nothing."""
    fake = FakeHip(library)
    fake.reset()
    runtime = HipRuntime(library)
    program = tmp_path / "clang"
    program.write_text(
        "#!/bin/sh\n"
        "case $1 in --version) echo clang version 20.0.0;; --print-targets) echo amdgcn;;\n"
        "*) [ -f kernel.s ] && cp kernel.s kernel.co && exit\n"
        "{ echo mxfp4_gemm:; echo mxfp4_quantize:; cat *.hip; } >kernel.s;; esac\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("MXFP4_HIP_COMPILER", str(program))
    monkeypatch.setattr(native_runner, "hip_runtime", lambda: runtime)
    monkeypatch.setattr(native_runner, "HipCache", lambda: HipCache(tmp_path / "cache"))
    driver = type("Driver", (), {"get_current_stream": staticmethod(lambda device: 0x5EA000)})
    monkeypatch.setattr(native_runner.triton.runtime.driver, "_active", driver)
    yield fake


def run(plan: Plan) -> None:
    plan.run((A, B, B_SCALE, OUT, WORK))


def launches(hip: FakeHip) -> list[tuple[list[int], int, bytes]]:
    """Grid, threads and argument bytes of each."""
    all_of = hip.state.launch[: hip.state.launches]
    assert {one.stream for one in all_of} == {0x5EA000}
    return [(list(one.grid), one.block[0], bytes(one.arguments[: one.argument_bytes])) for one in all_of]


def test_staged_hip_quantises_into_the_workspace_and_multiplies_from_it(hip: FakeHip) -> None:
    config = StagedHipConfig(BLOCK_M=32, BLOCK_N=128, waves_m=1, waves_n=4, GROUP_M=4, num_xcds=8)
    run(build_plan("staged_hip", config, Inputs(SHAPE, STRIDE_AM), make_runner))
    quantise, gemm = launches(hip)
    # 256 lanes of 8 values: 64 blocks of 32, 8 a row of 256 columns, so 8 rows a workgroup: 5 of them, twice along K.
    assert quantise == ([10, 1, 1], 256, struct.pack("<QQQiii", A, CODES, SCALES, 33, 512, STRIDE_AM))
    pointers = (CODES, SCALES, B, B_SCALE, OUT)
    assert gemm == ([2 * 4, 1, 1], 256, struct.pack("<5Q7i", *pointers, 33, 512, 512, 512, 1, 4, 8))


def test_staged_ck_gives_the_code_object_what_was_quantised(hip: FakeHip) -> None:
    try:
        code_object = find_catalogue().find(32, 128)
    except InputError as error:
        pytest.skip(str(error))
    config = StagedCkConfig(BLOCK_M=32, BLOCK_N=128, quantize_kernel="hip")
    run(build_plan("staged_ck", config, Inputs(SHAPE, STRIDE_AM), make_runner))
    quantise, (grid, threads, arguments) = launches(hip)
    assert quantise[2] == struct.pack("<QQQiii", A, CODES, SCALES, 33, 512, STRIDE_AM)
    assert hip.state.symbol.decode() == code_object.symbol
    assert (grid, threads, len(arguments)) == ([4, 2, 1], 256, 372)
    # Slots of 16 bytes: 0 output, 2 and 3 the operands, 17 and 18 their scales, 14 to 16 M, N and K.
    addresses = {slot: struct.unpack_from("<Q", arguments, 16 * slot)[0] for slot in (0, 2, 3, 17, 18)}
    assert addresses == {0: OUT, 2: CODES, 3: B, 17: SCALES, 18: B_SCALE}
    assert [struct.unpack_from("<I", arguments, 16 * slot)[0] for slot in (14, 15, 16)] == [33, 512, 512]


def test_a_second_call_launches_and_does_nothing_else(hip: FakeHip) -> None:
    plan = build_plan("staged_hip", StagedHipConfig(), Inputs(SHAPE, STRIDE_AM), make_runner)
    loaded = hip.state.loaded
    run(plan)
    run(plan)
    assert (hip.state.loaded, hip.state.launches) == (loaded, 4)
    assert loaded == 2  # one source quantises, the other multiplies
