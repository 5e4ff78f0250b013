"""Scalar instructions on 64 bits and lane masks: values worked out from the ISA's definitions."""

from __future__ import annotations

import subprocess

import pytest
from snippets import run

from kernels.rocm.toolchain import ToolNotFoundError, find_tool
from search.gfx950.simulator.instructions.salu import OPS

TOP = 1 << 63
X, Y = TOP | 0b1100, TOP | 0b1010  # all pairs of bits
# Text, s[0:1], s2, the destination s[4:5] before, it after, SCC after (None: not written; it was False).
CASES = [
    ("s_ff0_i32_b32 s4, s0", 0b1011, 0, 0, 2, None),
    ("s_ff0_i32_b64 s4, s[0:1]", 0xFFFFFFFFFF, 0, 0, 40, None),
    ("s_ff0_i32_b64 s4, s[0:1]", 2**64 - 1, 0, 0, 0xFFFFFFFF, None),
    ("s_flbit_i32_b64 s4, s[0:1]", 1 << 40, 0, 0, 23, None),
    ("s_flbit_i32 s4, s0", 0xFFFF0000, 0, 0, 16, None),
    ("s_flbit_i32_i64 s4, s[0:1]", 2**64 - 1, 0, 0, 0xFFFFFFFF, None),
    ("s_flbit_i32_i64 s4, s[0:1]", 1, 0, 0, 63, None),
    ("s_bcnt0_i32_b32 s4, s0", 0xFF, 0, 0, 24, True),
    ("s_bcnt0_i32_b64 s4, s[0:1]", 2**64 - 1, 0, 0, 0, False),
    ("s_wqm_b32 s4, s0", 0x100, 0, 0, 0xF00, True),
    ("s_wqm_b64 s[4:5], s[0:1]", TOP | 2, 0, 0, 0xF00000000000000F, True),
    ("s_quadmask_b32 s4, s0", 0x80001, 0, 0, 0b10001, True),
    ("s_quadmask_b64 s[4:5], s[0:1]", TOP | 1, 0, 0, 0x8001, True),
    ("s_brev_b64 s[4:5], s[0:1]", 1, 0, 0, TOP, None),
    ("s_bitreplicate_b64_b32 s[4:5], s0", 0x80000005, 0, 0, 0xC000000000000033, None),
    ("s_bfm_b64 s[4:5], s0, s2", 4, 40, 0, 0xF << 40, None),
    ("s_bfe_u64 s[4:5], s[0:1], s2", 0xABCD << 40, 8 << 16 | 44, 0, 0xBC, True),
    ("s_bfe_i64 s[4:5], s[0:1], s2", 0xABCD << 40, 8 << 16 | 44, 0, 2**64 - 0x44, True),
    ("s_bfe_u64 s[4:5], s[0:1], s2", TOP | 1, 64 << 16, 0, TOP | 1, True),
    ("s_bfe_u64 s[4:5], s[0:1], s2", TOP | 1, 0, 7, 0, False),
    ("s_bitcmp1_b64 s[0:1], s2", TOP, 63, 0, 0, True),
    ("s_bitcmp0_b64 s[0:1], s2", TOP, 63, 0, 0, False),
    ("s_bitset1_b64 s[4:5], s2", 0, 40, 1, 1 << 40 | 1, None),
    ("s_bitset0_b64 s[4:5], s2", 0, 40, 1 << 40 | 1, 1, None),
    ("s_cmov_b64 s[4:5], s[0:1]", 9, 0, 5, 5, None),
    ("s_cmovk_i32 s4, 0xfffe", 0, 0, 5, 5, None),
    ("s_cmov_b32 s4, s0", 9, 0, 5, 5, None),
    ("s_mov_b64 s[4:5], s[0:1]", TOP | 1, 0, 0, TOP | 1, None),
    ("s_cselect_b64 s[4:5], s[0:1], s[4:5]", 9, 0, 5, 5, None),
    ("s_not_b64 s[4:5], s[0:1]", 1, 0, 0, 2**64 - 2, True),
    ("s_lshl_b64 s[4:5], s[0:1], s2", 3, 65, 0, 6, True),
    ("s_lshr_b64 s[4:5], s[0:1], s2", TOP | 1, 63, 0, 1, True),
    ("s_ashr_i64 s[4:5], s[0:1], s2", TOP, 63, 0, 2**64 - 1, True),
    ("s_bcnt1_i32_b64 s4, s[0:1]", 2**64 - 1, 0, 0, 64, True),
    ("s_ff1_i32_b64 s4, s[0:1]", TOP, 0, 0, 63, None),
    ("s_and_b64 s[4:5], s[0:1], s[4:5]", X, 0, Y, TOP | 0b1000, True),
    ("s_or_b64 s[4:5], s[0:1], s[4:5]", X, 0, Y, TOP | 0b1110, True),
    ("s_xor_b64 s[4:5], s[0:1], s[4:5]", X, 0, Y, 0b0110, True),
    ("s_andn2_b64 s[4:5], s[0:1], s[4:5]", X, 0, Y, 0b0100, True),
    ("s_orn2_b64 s[4:5], s[0:1], s[4:5]", X, 0, Y, 2**64 - 1 - 0b0010, True),
    ("s_nand_b64 s[4:5], s[0:1], s[4:5]", X, 0, Y, TOP - 1 - 0b1000, True),
    ("s_nor_b64 s[4:5], s[0:1], s[4:5]", X, 0, Y, TOP - 1 - 0b1110, True),
    ("s_xnor_b64 s[4:5], s[0:1], s[4:5]", X, 0, Y, 2**64 - 1 - 0b0110, True),
    ("s_cmp_eq_u64 s[0:1], s[4:5]", TOP | 1, 0, 1, 1, False),
    ("s_cmp_lg_u64 s[0:1], s[4:5]", TOP | 1, 0, 1, 1, True),
]  # fmt: skip


@pytest.mark.parametrize(("text", "pair", "single", "before", "after", "scc"), CASES)
def test_results(text: str, pair: int, single: int, before: int, after: int, scc: bool | None) -> None:
    state = run(text, {"s[0:1]": pair, "s2": single, "s[4:5]": before, "scc": False})
    assert state.pair("s[4:5]") == after
    assert state.scc is bool(scc)


@pytest.mark.parametrize(
    ("text", "after"),
    [("s_cmov_b64 s[4:5], s[0:1]", 9), ("s_cmovk_i32 s4, 0xfffe", 0xFFFFFFFE), ("s_cmov_b32 s4, s0", 9)],
)
def test_conditional_moves_move_where_scc_is_set(text: str, after: int) -> None:
    assert run(text, {"s[0:1]": 9, "s[4:5]": 5, "scc": True}).pair("s[4:5]") == after


@pytest.mark.parametrize(
    ("name", "mask", "result"),
    [  # S0 = 0b0011, EXEC = 0b0101
        ("s_andn1_saveexec_b64", 0b0100, 0b0101), ("s_orn1_saveexec_b64", 2**64 - 3, 0b0101),
        ("s_andn1_wrexec_b64", 0b0100, 0b0100), ("s_andn2_wrexec_b64", 0b0010, 0b0010),
    ],
)  # fmt: skip
def test_exec_is_changed_and_the_old_or_the_new_mask_is_kept(name: str, mask: int, result: int) -> None:
    state = run(f"{name} s[4:5], s[0:1]", {"s[0:1]": 0b0011}, exec_mask=0b0101)
    assert (state.pair("exec"), state.pair("s[4:5]"), state.scc) == (mask, result, True)


def test_every_instruction_on_64_bits_is_tested() -> None:
    tested = {text.split()[0] for text, *_ in CASES}
    assert {name for name in OPS if "64" in name and not name.endswith("exec_b64")} <= tested


def test_the_assembler_knows_every_line() -> None:
    try:
        tool = find_tool("llvm-mc")
    except ToolNotFoundError:
        pytest.skip("no llvm-mc")
    command = [str(tool), "-triple=amdgcn-amd-amdhsa", "-mcpu=gfx950", "--show-encoding"]
    text = "\n".join(text for text, *_ in CASES)
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
