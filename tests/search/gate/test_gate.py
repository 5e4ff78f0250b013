"""check: what is right passes, every known way to be wrong is caught, on machine code compiled for gfx950."""

from __future__ import annotations

import resource
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from broken_kernels import broken_gemm_kernel
from compiled_programs import check, compiled, default_program, simulated_families, skip_unless_here

from kernels.errors import WrongResultError
from kernels.families import FAMILIES
from kernels.launches.coverage import TileCoverage
from kernels.launches.program import Buffer, KernelCall, Program
from kernels.launches.triton_kernel import TritonKernel
from kernels.mxfp4.reference import to_bf16
from kernels.problem import GemmShape
from search.gate.check import check_program, load_calls
from search.gate.sample import take_sample
from search.gfx950.simulator import InstructionClass
from search.gfx950.simulator.state.findings import SimulatorLimitError

TAILS = GemmShape(17, 64, 448)  # M is no multiple of any tile, K of BLOCK_K = 256 neither
SHAPES = (GemmShape(1, 64, 192), TAILS, GemmShape(40, 192, 320))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("family", simulated_families())
def test_a_right_program_passes(family: str, shape: GemmShape) -> None:
    skip_unless_here(family)
    if family == "staged_ck":
        shape = GemmShape(shape.M, shape.N, 256 * -(-shape.K // 256))
    if family.startswith("aiter_triton"):  # which take no tail of K, and whose default tile is for fewer than 32 rows
        shape = GemmShape(min(shape.M, 31), 64, 256 * -(-shape.K // 256))
    report = check(default_program(family, shape), shape)
    assert 0 < report.max_rel_error <= 2**-8  # half a step of bf16's 8 bits, relative to the smallest mantissa
    assert report.elements == shape.M * shape.N or shape.M == 40
    gemm = max(report.histograms, key=lambda histogram: histogram.by_class[InstructionClass.MFMA])
    assert gemm.by_class[InstructionClass.MFMA] > 0


@pytest.mark.parametrize("family", simulated_families())
def test_default_configurations_use_the_fp4_instructions(family: str) -> None:
    skip_unless_here(family)
    calls = compiled(default_program(family, TAILS))
    assert sum(one.analysis.mix.mfma_scaled for one in calls) > 0
    quantizing = [one for one in calls if "a" in one.call.args.values()]
    assert [one.analysis.mix.cvt_scalef32 > 0 for one in quantizing] == [True]


def broken(mistake: str, shape: GemmShape, BLOCK_N: int = 64, **args: int) -> Program:
    """The test kernel with one mistake: tiles of 16 x BLOCK_N x 256."""
    buffers = default_program("fused", shape).buffers
    coverage = TileCoverage(shape.M, shape.N, 16, BLOCK_N)
    call = KernelCall(
        TritonKernel(broken_gemm_kernel),
        (coverage.num_m * coverage.num_n, 1, 1),
        {"a_ptr": "a", "b_ptr": "b", "b_scale_ptr": "b_scale", "out_ptr": "out",
         "M": args.get("M", shape.M), "stride_am": shape.K, "stride_om": shape.N},
        {"N": args.get("N", shape.N), "K": shape.K, "BLOCK_M": 16, "BLOCK_N": BLOCK_N, "BLOCK_K": 256,
         "MISTAKE": mistake},
        coverage,
        {"num_warps": 4, "num_stages": 1, "matrix_instr_nonkdim": 16},
    )  # fmt: skip
    return Program(buffers, (call,))


def test_the_kernel_of_these_tests_is_right_without_a_mistake() -> None:
    assert check(broken("none", TAILS), TAILS).max_rel_error <= 2**-8


@pytest.mark.parametrize(
    ("mistake", "finding"),
    [
        ("k_tail", "out_of_bounds"),  # the last row of A runs past its end
        ("scale_pads", "nan instead of"),  # 0xFF beyond K
        ("row_major_scales", "instead of"),
        ("swapped_codes", "instead of"),
        ("unrounded", "instead of"),  # small values lost before quantisation
    ],
)
def test_a_mistake_along_k_is_caught(mistake: str, finding: str) -> None:
    with pytest.raises(WrongResultError, match=finding):
        check(broken(mistake, TAILS), TAILS)


def test_a_kernel_that_overwrites_an_operand_is_caught_and_does_the_next_candidate_no_harm() -> None:
    with pytest.raises(WrongResultError, match=r"read_only_store: .* of a_ptr .*, which is an operand"):
        check(broken("scratch_a", TAILS), TAILS)
    assert check(broken("none", TAILS), TAILS).max_rel_error <= 2**-8


def test_a_kernel_that_ignores_the_m_tail_is_caught() -> None:
    with pytest.raises(WrongResultError, match="out_of_bounds"):
        check(broken("none", TAILS, M=32), TAILS)


def test_a_tile_wider_than_n_without_a_guard_is_caught() -> None:
    with pytest.raises(WrongResultError, match="out_of_bounds"):
        check(broken("none", TAILS, BLOCK_N=128, N=128), TAILS)


def test_a_program_that_computes_another_tile_than_its_own_is_caught() -> None:
    shape = GemmShape(16, 640, 256)  # ten tiles, of which three are executed
    with pytest.raises(WrongResultError):
        check(broken("wrong_tile", shape), shape)


def test_a_reduction_that_reads_more_slices_than_were_written_is_caught() -> None:
    program = default_program("fused_splitk_workspace", TAILS, split_k=2)
    gemm, reduce = program.calls
    larger = [Buffer("slices", "fp32", (3, TAILS.M, TAILS.N), "workspace")]
    buffers = tuple(buffer for buffer in program.buffers if buffer.name != "slices")
    dirty = replace(reduce, constexprs={**reduce.constexprs, "SPLIT_K": 3})
    with pytest.raises(WrongResultError, match="uninitialised"):
        check(Program((*buffers, *larger), (gemm, dirty)), TAILS)


def test_a_split_that_loses_a_slice_is_caught() -> None:
    program = default_program("fused_splitk_workspace", TAILS, split_k=2)
    gemm, reduce = program.calls
    fewer = replace(reduce, constexprs={**reduce.constexprs, "SPLIT_K": 1})
    with pytest.raises(WrongResultError, match="instead of"):
        check(Program(program.buffers, (gemm, fewer)), TAILS)


def test_atomics_into_an_accumulator_that_nobody_cleared_are_caught() -> None:
    program = default_program("fused_splitk_atomic", TAILS, split_k=2)
    with pytest.raises(WrongResultError):
        check(Program(program.buffers, program.calls[1:]), TAILS)


def test_an_instruction_that_is_not_modelled_is_no_pass() -> None:
    program = default_program("fused", TAILS)
    one = compiled(program)[0]
    unknown = replace(one, kernel=replace(one.kernel, assembly=one.kernel.assembly.replace("v_mov_b32", "v_mvo_b32")))
    with pytest.raises(SimulatorLimitError, match="unmodelled instruction v_mvo_b32"):
        check_program(program, load_calls([unknown]), TAILS)


@pytest.mark.parametrize("family", ["fused", "fused_splitk_ticket"])
def test_a_product_that_is_larger_than_the_memory_takes_that_of_its_sample(family: str) -> None:
    shape = GemmShape(1 << 17, 129280, 512)  # C has 34 GB; with four slices of fp32 and who stored what 360 GB
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert check(default_program(family, shape, BLOCK_M=64, BLOCK_N=128, BLOCK_K=128), shape).elements > 4 * 64 * 128
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # KB


def test_an_element_off_by_one_step_is_named() -> None:
    program = default_program("fused", TAILS)
    sample = take_sample(program, TAILS)
    out = sample.memory["out"].array
    exact = to_bf16(sample.inputs.expected(range(17), range(64)).reference)
    out[...] = exact.view(torch.uint16).numpy()
    assert sample.compare() <= 2**-8
    out[3, 5] += 1  # the sums are exact in any order
    with pytest.raises(WrongResultError, match=r"C\[3, 5\] is .* instead of .*; 1 of \d+ elements"):
        sample.compare()


@pytest.mark.parametrize("shape", [GemmShape(16, 640, 64), GemmShape(4096, 4096, 64)], ids=["poisoned", "too large"])
def test_a_write_outside_of_the_executed_tiles_is_caught(shape: GemmShape) -> None:
    sample = take_sample(default_program("fused", shape), shape)
    out = sample.memory["out"].array
    for region in sample.touched[-1]:
        exact = to_bf16(sample.inputs.expected(region.rows, region.columns).reference)
        rows, columns = (slice(span.start, span.stop) for span in (region.rows, region.columns))
        out[rows, columns] = exact.view(torch.uint16).numpy()
    sample.reject_stray_values()
    owned = {column for region in sample.touched[-1] for column in region.columns}
    m, n = shape.M - 1, min(set(range(shape.N)) - owned)
    out[m, n] = 5
    with pytest.raises(WrongResultError, match=rf"C\[{m}, {n}\] was written .* \(1 element\)"):
        sample.reject_stray_values()


SPLIT = {"BLOCK_M": 256, "BLOCK_N": 256, "log2_k_split": 1}


def test_slices_that_a_code_object_adds_in_bf16_have_their_own_tolerance() -> None:
    skip_unless_here("staged_ck")
    shape = GemmShape(40, 512, 1024)
    program = default_program("staged_ck", shape, **SPLIT)
    assert check(program, shape).max_rel_error > 2**-7  # more than the step that other programs are allowed


def test_slices_added_to_an_output_that_nobody_cleared_are_caught() -> None:
    skip_unless_here("staged_ck")
    shape = GemmShape(40, 512, 1024)
    program = default_program("staged_ck", shape, **SPLIT)
    quantize, _, gemm = program.calls
    with pytest.raises(WrongResultError, match="uninitialised"):
        check(replace(program, calls=(quantize, gemm)), shape)


@pytest.mark.parametrize("M", [40, 300])
@pytest.mark.parametrize("tile", [(256, 256), (192, 256), (224, 256), (128, 512)], ids=str)
def test_a_code_object_that_writes_beyond_its_rows_is_caught(tile: tuple[int, int], M: int) -> None:
    skip_unless_here("staged_ck")
    shape = GemmShape(M, tile[1] + 64, 512)  # what the family's rules refuse
    program = default_program("staged_ck", shape, BLOCK_M=tile[0], BLOCK_N=tile[1])
    with pytest.raises(WrongResultError):
        check(program, shape)


def test_stores_beside_the_tile_are_caught_even_if_their_owner_comes_last() -> None:
    skip_unless_here("staged_ck")
    shape = GemmShape(17, 192, 256)
    program = default_program("staged_ck", shape)
    sample = take_sample(program, shape)
    once = 17 * 192 * 2
    histogram = check(program, shape).histograms[-1]
    assert histogram.global_written_bytes == once
    (argument,) = [name for name, buffer in program.calls[1].args.items() if buffer == "out"]

    def stored(*sizes: int) -> Any:
        return SimpleNamespace(stores={argument: SimpleNamespace(size=np.array(sizes))})

    sample.reject_repeated_stores(1, stored(once - 16, 16))
    with pytest.raises(WrongResultError, match=rf"stored {once + 16} bytes of the output, its tiles have {once}"):
        sample.reject_repeated_stores(1, stored(once, 16))


@pytest.mark.parametrize(
    ("family", "number"),
    [("fused", 0), *[(name, i) for name in ("fused_splitk_atomic", "staged_triton") for i in range(3)],
     ("fused_splitk_workspace", 0), ("fused_splitk_workspace", 1), ("staged_hip", 0), ("staged_hip", 1)],
)  # fmt: skip
def test_a_grid_that_is_one_workgroup_short_is_caught_in_every_launch(family: str, number: int) -> None:
    skip_unless_here(family)
    shape = GemmShape(300, 192, 320)  # every launch has several workgroups
    knobs = {"split_k": 2} if family != "fused" and family != "staged_hip" else {}
    program = default_program(family, shape, **knobs)
    calls = list(program.calls)
    x, y, z = calls[number].grid
    calls[number] = replace(calls[number], grid=(x - 1, y, z))
    with pytest.raises(WrongResultError, match=rf"its grid is \({x - 1}, {y}, {z}\).*needs \({x}, {y}, {z}\)"):
        take_sample(replace(program, calls=tuple(calls)), shape)


def test_a_native_kernel_gets_its_arguments_as_the_launcher_packs_them() -> None:
    skip_unless_here("staged_hip")
    program = default_program("staged_hip", TAILS)
    quantize, gemm = program.calls
    swapped = replace(gemm.kernel, arg_names=("a_scale_ptr", "codes_ptr", *gemm.kernel.arg_names[2:]))
    with pytest.raises(WrongResultError):
        check(replace(program, calls=(quantize, replace(gemm, kernel=swapped))), TAILS)


def test_the_fp4_conversion_takes_no_register_that_a_matrix_instruction_still_uses() -> None:
    shape = GemmShape(48, 512, 512)
    tile = {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 256, "num_warps": 4, "num_stages": 2}
    program = FAMILIES["fused"].program(shape, FAMILIES["fused"].config(tile))
    (one,) = compiled(program)
    conversions = [i for i in one.decoded().program.instructions if "cvt_scalef32" in i.statement.mnemonic]
    assert conversions and all(i.statement.operands[0] == i.statement.operands[1] for i in conversions)
    assert one.decoded().program.hazards == ()
