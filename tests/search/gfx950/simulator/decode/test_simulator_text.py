"""Parsing of instructions, operands and both text formats."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from search.gfx950.simulator import SimulationError, UnknownInstructionError
from search.gfx950.simulator.decode.text import parse_objdump, parse_statement, parse_triton
from search.gfx950.simulator.state.registers import AGPR, SGPR, constant_dwords, parse_operand, register_name


def test_statement_parts() -> None:
    statement = parse_statement("v_mfma_x a[0:3], v[4:5], s1, -|v2| op_sel:[1,0,0] cbsz:4 clamp", 7)
    assert statement.operands == ("a[0:3]", "v[4:5]", "s1", "-|v2|")
    assert dict(statement.modifiers) == {"op_sel": "[1,0,0]", "cbsz": "4", "clamp": ""}
    assert statement.line == 7


@pytest.mark.parametrize(
    ("text", "index", "count", "neg", "absolute"),
    [
        ("v3", 3, 1, False, False), ("v[4:7]", 4, 4, False, False), ("a2", AGPR + 2, 1, False, False),
        ("s[2:3]", SGPR + 2, 2, False, False), ("-v1", 1, 1, True, False), ("|v1|", 1, 1, False, True),
        ("-|v[0:1]|", 0, 2, True, True), ("vcc", SGPR + 106, 2, False, False), ("m0", SGPR + 124, 1, False, False),
        ("exec_hi", SGPR + 127, 1, False, False), ("neg(s1)", SGPR + 1, 1, True, False), ("v[5]", 5, 1, False, False),
    ],
)  # fmt: skip
def test_register_operands(text: str, index: int, count: int, neg: bool, absolute: bool) -> None:
    operand = parse_operand(text)
    assert (operand.index, operand.count, operand.neg, operand.abs) == (index, count, neg, absolute)


@pytest.mark.parametrize("text", ["v256", "s102", "v[5:4]", "ttmp0", "q1", "src_private_base"])
def test_registers_that_do_not_exist_are_errors(text: str) -> None:
    with pytest.raises(UnknownInstructionError):
        parse_operand(text)


@pytest.mark.parametrize(
    ("text", "kind", "dwords"),
    [
        ("-1", "u32", (0xFFFFFFFF, 0)), ("-1", "b64", (0xFFFFFFFF, 0xFFFFFFFF)), ("0x3f", "u32", (0x3F, 0)),
        ("1.0", "f32", (0x3F800000, 0)), ("1.0", "f16", (0x3C00, 0)), ("-0.5", "f64", (0, 0xBFE00000)),
        ("1.0", "pk16", (0x3F800000, 0)), ("0.15915494", "f32", (0x3E22F983, 0)),
        ("0x40200000", "f64", (0, 0x40200000)),
        ("2.0", "bf16", (0x4000, 0)),
    ],
)  # fmt: skip
def test_inline_constants(text: str, kind: str, dwords: tuple[int, int]) -> None:
    assert constant_dwords(text, kind) == dwords


@pytest.mark.parametrize("name", ["v0", "a255", "s101", "vcc_lo", "m0", "exec_hi"])
def test_names_round_trip(name: str) -> None:
    index = parse_operand(name).index
    assert index is not None
    assert register_name(index) == name


def test_compiler_text_keeps_labels_and_skips_directives() -> None:
    text = """
\t.text
k:                                      ; @k
\t.loc 1 2 3
\ts_nop 0   ; comment
.LBB0_1:
\ts_branch .LBB0_1
\t.section .rodata
\ts_endpgm
"""
    listing = parse_triton(text)
    assert [s.text for s in listing.statements] == ["s_nop 0", "s_branch .LBB0_1"]
    assert listing.labels[".LBB0_1"] == 1


def test_missing_function_is_an_error() -> None:
    with pytest.raises(SimulationError, match="no function other"):
        parse_triton("k:\ns_endpgm", "other")


DISASSEMBLY = """
x.co:\tfile format elf64-amdgpu

0000000000001b00 <k>:
\ts_nop 0                                                    // 000000001B00: BF800000
\ts_cbranch_scc1 65534                                       // 000000001B04: BF85FFFE <k>
0000000000001b08 <label_2>:
\tv_add_u32_e32 v1, 0x12345, v1                              // 000000001B08: 680202FF 00012345
\ts_branch label_2                                           // 000000001B10: BF82FFFD
0000000000001c00 <other>:
\ts_endpgm                                                   // 000000001C00: BF810000
"""


def test_disassembly_keeps_addresses_and_labels_of_one_function() -> None:
    listing = parse_objdump(DISASSEMBLY, "k", 0x1B00, 0x1C00)
    assert [s.address for s in listing.statements] == [0x1B00, 0x1B04, 0x1B08, 0x1B10]
    assert listing.labels["label_2"] == 2


def test_branch_displacements_are_resolved_from_addresses() -> None:
    from search.gfx950.simulator.program import decode_program

    program = decode_program(parse_objdump(DISASSEMBLY, "k", 0x1B00, 0x1C00))
    assert (program.instructions[1].target, program.instructions[3].target) == (0, 2)


ASSEMBLER = next((found for version in range(30, 19, -1) if (found := shutil.which(f"llvm-mc-{version}"))), None)


@pytest.mark.skipif(ASSEMBLER is None, reason="no llvm-mc of LLVM 20 or newer")
def test_every_alu_mnemonic_in_the_tables_exists_on_gfx950() -> None:
    """LLVM's assembler accepts each mnemonic with operands of the widths that the table states."""
    from search.gfx950.simulator.program import OPS

    lines = [text for name, op in OPS.items() if (text := _sample(name, op.dst, op.src)) is not None]
    assert ASSEMBLER is not None
    done = subprocess.run(
        [ASSEMBLER, "-triple=amdgcn", "-mcpu=gfx950", "-filetype=null"],
        input="\n".join(lines) + "\n", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    assert len(lines) > 400


_LITERAL = {
    "v_fmamk_f32": "v_fmamk_f32 v4, v8, 0x41200000, v12", "v_fmaak_f32": "v_fmaak_f32 v4, v8, v12, 0x41200000",
    "v_nop": "v_nop", "v_writelane_b32": "v_writelane_b32 v4, s8, 3", "v_readlane_b32": "v_readlane_b32 s4, v8, s12",
    "v_readfirstlane_b32": "v_readfirstlane_b32 s4, v8", "v_accvgpr_write_b32": "v_accvgpr_write_b32 a4, v8",
    "v_accvgpr_read_b32": "v_accvgpr_read_b32 v4, a8", "v_accvgpr_mov_b32": "v_accvgpr_mov_b32 a4, a8",
}  # fmt: skip


def _sample(name: str, dst: tuple[str, ...], src: tuple[str, ...]) -> str | None:
    if name in _LITERAL:
        return _LITERAL[name]
    plain, clamp = name.removesuffix(".clamp"), name.endswith(".clamp")
    words = []
    for position, kind in enumerate(dst + src):
        first, wide = 4 * position + 4, kind in ("b64", "f64", "pkf32", "mask")
        bank = "s" if name.startswith("s_") or kind == "mask" else "v"
        words.append(f"{bank}[{first}:{first + 1}]" if wide else f"{bank}{first}")
    if plain.startswith("s_cmpk_") or plain in ("s_movk_i32", "s_cmovk_i32", "s_addk_i32", "s_mulk_i32"):
        words[-1] = "0x123"
    if clamp and plain in ("v_add_u32", "v_sub_u32", "v_add_u16", "v_sub_u16"):
        plain += "_e64"
    return f"{plain} {', '.join(words)}{' clamp' if clamp else ''}{' bitop3:0x36' if 'bitop3' in name else ''}"
