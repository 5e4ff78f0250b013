"""Matrix instructions and the waits around them: too few are found, as many as LLVM inserts are not."""

from __future__ import annotations

import subprocess

import pytest
from snippets import kernel

from kernels.rocm.toolchain import ToolNotFoundError, find_tool
from search.gfx950.simulator import FindingKind, SimulatedLaunch, load_assembly, simulate
from search.gfx950.simulator.decode.text import Listing, parse_statement
from search.gfx950.simulator.hazards import Hazard, matrix_hazards
from search.gfx950.simulator.program import decode_program

FP4_16 = "v_mfma_f32_16x16x128_f8f6f4 {d}, v[8:11], v[12:15], {c} cbsz:4 blgp:4"
FP8_16 = "v_mfma_f32_16x16x128_f8f6f4 {d}, v[8:15], v[16:23], {c}"
FP4_32 = "v_mfma_f32_32x32x64_f8f6f4 {d}, v[8:11], v[12:15], {c} cbsz:4 blgp:4"
FP8_32 = "v_mfma_f32_32x32x64_f8f6f4 {d}, v[8:15], v[16:23], {c}"
BF16_32 = "v_mfma_f32_32x32x16_bf16 {d}, v[8:11], v[12:15], {c}"
PLAIN_FP8_16 = "v_mfma_f32_16x16x32_fp8_fp8 {d}, v[8:9], v[12:13], {c}"
I8_16 = "v_mfma_i32_16x16x64_i8 {d}, v[8:11], v[12:15], {c}"
BF16_4 = "v_mfma_f32_4x4x4_16b_bf16 {d}, v[8:9], v[12:13], {c}"
F32_16 = "v_mfma_f32_16x16x4_f32 {d}, v8, v12, {c}"
F32_32 = "v_mfma_f32_32x32x2_f32 {d}, v8, v12, {c}"
WIDTH = {
    FP4_16: 4, FP8_16: 4, FP4_32: 16, FP8_32: 16, BF16_32: 16, PLAIN_FP8_16: 4, I8_16: 4, BF16_4: 4, F32_16: 4,
    F32_32: 16,
}  # fmt: skip


def hazards(*lines: str) -> list[Hazard]:
    listing = Listing([parse_statement(line, number) for number, line in enumerate(lines, 1)], {})
    return list(decode_program(listing).hazards)


def matrix(text: str, d: int = 64, c: int | None = None) -> str:
    def registers(first: int) -> str:
        return f"v[{first}:{first + WIDTH[text] - 1}]"

    return text.format(d=registers(d), c="0" if c is None else registers(c))


def after(text: str, states: int, use: str, **more: int) -> list[Hazard]:
    """Hazards of ``use``, so many wait states behind the instruction that writes v64 and those above."""
    waits = [f"s_nop {min(15, states - start - 1)}" for start in range(0, states, 16)]
    return hazards(matrix(text, **more), *waits, use, "s_endpgm")


def test_what_another_matrix_instruction_overwrote_in_part_is_waited_for_there() -> None:
    """LLVM looks at the last one that wrote to the addend; Triton 3.6 makes such code where registers are short."""
    first, second = matrix(FP4_16, 26), matrix(FP4_16, 28)  # v[28:29] are of both
    between = ["s_nop 1"]
    assert hazards(first, second, *between, matrix(FP4_16, 28, 28), "s_endpgm") == []
    (one,) = hazards(first, second, *between, matrix(FP4_16, 40, 26), "s_endpgm")
    assert (one.first, one.second, one.detail[:11]) == (1, 3, "adds to v28")


# What llc of LLVM 22 puts between them for gfx950, in wait states.
NEEDED = [
    (FP4_16, 8), (FP8_16, 12), (FP4_32, 12), (FP8_32, 20), (BF16_32, 12), (PLAIN_FP8_16, 8), (I8_16, 8), (BF16_4, 5),
    (F32_16, 10), (F32_32, 18),
]  # fmt: skip
USES = [
    "v_add_f32_e32 v2, v64, v3", "global_store_dword v[4:5], v67, off", "ds_write_b32 v4, v66",
    "v_mov_b32_e32 v65, 0", matrix(FP4_16, 24).replace("v[8:11]", "v[64:67]"),
]  # fmt: skip


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(("text", "needed"), NEEDED)
def test_a_result_may_be_touched_after_its_wait_states_and_not_before(text: str, needed: int, use: str) -> None:
    assert not after(text, needed, use)
    (found,) = after(text, needed - 1, use)
    assert f"{needed - 1} wait states" in found.detail and f"{needed} are needed" in found.detail


@pytest.mark.parametrize("text", [FP4_16, FP4_32])
def test_the_same_registers_may_be_added_to_back_to_back(text: str) -> None:
    assert not after(text, 0, matrix(text, 64, 64))


def test_the_shortest_ones_hand_their_results_on_after_two_wait_states() -> None:
    assert after(BF16_4, 1, matrix(BF16_4, 64, 64)) and not after(BF16_4, 2, matrix(BF16_4, 64, 64))


@pytest.mark.parametrize(("text", "needed"), [(FP4_16, 8), (FP8_16, 12), (BF16_4, 5)])
def test_a_factor_that_is_added_too_is_waited_for_as_a_factor(text: str, needed: int) -> None:
    squared = matrix(FP4_16, 64, 64).replace("v[8:11]", "v[64:67]")
    assert after(text, needed - 1, squared) and not after(text, needed, squared)


@pytest.mark.parametrize(("text", "needed"), [(FP4_16, 6), (FP8_16, 10), (FP4_32, 10), (BF16_4, 4)])
def test_registers_that_overlap_in_part_may_not(text: str, needed: int) -> None:
    shifted = matrix(text, 128, 66)
    assert after(text, needed - 1, shifted) and not after(text, needed, shifted)


@pytest.mark.parametrize(("text", "needed"), [(FP4_16, 3), (FP8_16, 7), (FP4_32, 7), (FP8_32, 15)])
def test_an_addend_may_be_overwritten_only_when_it_has_been_read(text: str, needed: int) -> None:
    overwriting = "v_mov_b32_e32 v33, 0"
    assert after(text, needed - 1, overwriting, c=32) and not after(text, needed, overwriting, c=32)


def test_an_addend_is_waited_for_although_the_result_was_overwritten() -> None:
    """Or although it was not: the wait is for whoever read the addend last, as in LLVM."""
    read, unread, overwriting = matrix(FP8_16, 64, 32), matrix(FP4_16, 64), "v_mov_b32_e32 v33, 0"
    found = hazards(read, unread, "s_nop 4", overwriting, "s_endpgm")
    assert [(one.first, one.second) for one in found] == [(0, 3)]
    assert hazards(read, unread, "s_nop 5", overwriting, "s_endpgm") == []
    assert hazards(read, matrix(FP4_16, 68, 32), "s_nop 2", overwriting, "s_endpgm") == []


def test_a_vector_result_needs_two_wait_states_to_a_matrix_instruction() -> None:
    write = "v_mov_b32_e32 v8, 0"
    assert hazards(write, matrix(FP4_16)) and hazards(write, "s_nop 0", matrix(FP4_16))
    assert not hazards(write, "s_nop 1", matrix(FP4_16))
    assert not hazards("v_mov_b32_e32 v7, 0", matrix(FP4_16))


def test_a_reader_behind_a_branch_is_found() -> None:
    text = f"k:\n{matrix(FP4_16)}\ns_cbranch_scc1 .L1\ns_endpgm\n.L1:\nv_mov_b32_e32 v0, v64\ns_endpgm"
    program = kernel(text.removeprefix("k:\n")).program
    (found,) = matrix_hazards(program.instructions)
    assert (found.first, found.second) == (0, 3)


@pytest.mark.parametrize("between", ["s_cbranch_scc1 .L1", "s_branch .L1\ns_endpgm", "s_barrier"])
def test_a_vector_result_before_a_branch_or_a_barrier_is_found(between: str) -> None:
    def found(waits: str) -> list[tuple[int, str]]:
        text = f"v_mov_b32_e32 v8, 0\n{waits}{between}\n.L1:\n{matrix(FP4_16)}\ns_endpgm"
        return [(one.first, one.detail) for one in matrix_hazards(kernel(text).program.instructions)]

    wanted = "reads v8 1 wait states after a VALU instruction wrote it, 2 are needed"
    assert set(found("")) == {(0, wanted)} and not found("s_nop 0\n")


def test_only_what_is_executed_becomes_a_finding() -> None:
    head = "s_cmp_eq_u32 s2, s2\ns_cbranch_scc1 .L1\n"
    body = "".join(f"v_mov_b32_e32 v{register}, 0\n" for register in range(8, 16)) + "s_nop 1\n"
    wrong = f"{matrix(FP4_16)}\nv_mov_b32_e32 v0, v64\n"
    skipped = simulate(kernel(f"{head}{body}{wrong}.L1:\ns_endpgm"), SimulatedLaunch({}, (1, 1, 1), (64, 1, 1)))
    assert skipped.clean
    executed = simulate(kernel(f"{body}{wrong}s_endpgm"), SimulatedLaunch({}, (1, 1, 1), (64, 1, 1)))
    assert [finding.kind for finding in executed.findings] == [FindingKind.MATRIX_HAZARD]
    assert executed.findings[0].text == "v_mov_b32_e32 v0, v64"


LLC = """
declare <4 x float> @llvm.amdgcn.mfma.scale.f32.16x16x128.f8f6f4.v{n}i32.v{n}i32(
  <{n} x i32>, <{n} x i32>, <4 x float>, i32, i32, i32, i32, i32, i32)
define amdgpu_kernel void @k(<{n} x i32> %a, <{n} x i32> %b, <4 x float> %c, ptr addrspace(1) %p) {{
  %r = call <4 x float> @llvm.amdgcn.mfma.scale.f32.16x16x128.f8f6f4.v{n}i32.v{n}i32(
    <{n} x i32> %a, <{n} x i32> %b, <4 x float> %c, i32 {f}, i32 {f}, i32 0, i32 0, i32 0, i32 0)
  store <4 x float> %r, ptr addrspace(1) %p
  ret void
}}
"""


@pytest.mark.parametrize(("registers", "form"), [(4, 4), (8, 0)])
def test_what_llvm_schedules_has_no_hazard_and_with_one_wait_less_it_has(registers: int, form: int) -> None:
    try:
        llc = find_tool("llc")
    except ToolNotFoundError:
        pytest.skip("no llc")
    command = [str(llc), "-mtriple=amdgcn-amd-amdhsa", "-mcpu=gfx950", "-o", "-"]
    text = LLC.format(n=registers, f=form)
    assembly = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    assert not load_assembly(assembly).program.hazards
    before, _, behind = assembly.rpartition("s_nop ")
    count, _, rest = behind.partition("\n")
    assert load_assembly(f"{before}s_nop {int(count) - 1}\n{rest}").program.hazards
