"""16-bit operations of three operands, sums of differences, packing: values worked out from the ISA's definitions."""

from __future__ import annotations

import re
import subprocess

import pytest
from snippets import LANE, run

from kernels.rocm.toolchain import ToolNotFoundError, find_tool
from search.gfx950.simulator.decode.bind import base_name
from search.gfx950.simulator.program import OPS

NAMES = re.compile(
    r"v_((min3|max3|med3)_.16|mad_.32_.16|mul_hi_.32_.24|mbcnt_.._.*|m?sad_.*|lerp_u8|ffbh_i32"
    r"|cvt_pk_(.16_.32|f16_f32|u8_f32)|pack_b32_f16)"
)
HALF_ONE, HALF_TWO, HALF_NAN, HALF_MINUS = 0x3C00, 0x4000, 0x7E00, 0xBC00
# Text, v0 to v2, v3 before, v3 after.
CASES = [
    # 16 bits of three operands: the high half of the destination stays, op_sel moves to the high halves.
    ("v_max3_u16 v3, v0, v1, v2", (0x10005, 0xFFFE, 7), 0xABCD0000, 0xABCDFFFE),
    ("v_max3_i16 v3, v0, v1, v2", (0x10005, 0xFFFE, 7), 0xABCD0000, 0xABCD0007),  # 0xFFFE is -2
    ("v_min3_u16 v3, v0, v1, v2", (0x10005, 0xFFFE, 7), 0xABCD0000, 0xABCD0005),
    ("v_min3_i16 v3, v0, v1, v2", (5, 0xFFFE, 7), 0, 0xFFFE),
    ("v_med3_u16 v3, v0, v1, v2", (5, 0xFFFE, 7), 0, 7),
    ("v_med3_i16 v3, v0, v1, v2", (5, 0xFFFE, 7), 0, 5),
    ("v_max3_u16 v3, v0, v1, v2 op_sel:[1,0,0,0]", (0x00090001, 2, 3), 0, 9),
    ("v_max3_u16 v3, v0, v1, v2 op_sel:[0,0,0,1]", (1, 2, 3), 0x1234, 0x00031234),
    ("v_max3_f16 v3, v0, v1, v2", (HALF_ONE, HALF_TWO, HALF_MINUS), 0, HALF_TWO),
    ("v_min3_f16 v3, v0, v1, v2", (HALF_ONE, HALF_TWO, HALF_MINUS), 0, HALF_MINUS),
    ("v_med3_f16 v3, v0, v1, v2", (HALF_ONE, HALF_TWO, HALF_MINUS), 0, HALF_ONE),
    ("v_max3_f16 v3, v0, v1, v2", (HALF_ONE, HALF_NAN, HALF_MINUS), 0, HALF_ONE),  # maxNum drops a NaN
    ("v_mad_u32_u16 v3, v0, v1, v2", (0x1FFFF, 0xFFFF, 1), 0, 0xFFFE0002),  # 65535**2 + 1
    ("v_mad_i32_i16 v3, v0, v1, v2", (0xFFFF, 0x8000, 5), 0, 0x8005),  # -1 * -32768 + 5
    ("v_mul_hi_u32_u24_e32 v3, v0, v1", (0xFF800000, 0x800000, 0), 0, 0x4000),  # 2**46 >> 32; the top byte is not read
    ("v_mul_hi_i32_i24_e32 v3, v0, v1", (0x800000, 0x7FFFFF, 0), 0, 0xFFFFC000),  # -(2**46 - 2**23) >> 32
    ("v_sad_u32 v3, v0, v1, v2", (3, 0xFFFFFFFF, 10), 0, 6),  # 0xFFFFFFFC + 10, mod 2**32
    ("v_sad_u16 v3, v0, v1, v2", (0x00050001, 0x00020009, 100), 0, 111),  # 3 + 8
    ("v_sad_u8 v3, v0, v1, v2", (0x01020304, 0x04030201, 1), 0, 9),  # 3 + 1 + 1 + 3
    ("v_sad_hi_u8 v3, v0, v1, v2", (0x01020304, 0x04030201, 1), 0, 0x80001),
    ("v_msad_u8 v3, v0, v1, v2", (0x01020304, 0x04000201, 1), 0, 8),  # the byte of S1 that is 0 counts nothing
    ("v_lerp_u8 v3, v0, v1, v2", (0x01FF0304, 0x02FF0301, 0x01010000), 0, 0x02FF0302),
    ("v_ffbh_i32_e32 v3, v0", (0x00010000, 0, 0), 0, 15),
    ("v_ffbh_i32_e32 v3, v0", (0xFFFF0000, 0, 0), 0, 16),
    ("v_ffbh_i32_e32 v3, v0", (0xFFFFFFFF, 0, 0), 0, 0xFFFFFFFF),
    ("v_cvt_pk_i16_i32 v3, v0, v1", (70000, 0xFFFF0000, 0), 0, 0x80007FFF),  # -65536
    ("v_cvt_pk_u16_u32 v3, v0, v1", (70000, 3, 0), 0, 0x0003FFFF),
    ("v_cvt_pk_f16_f32 v3, v0, v1", (1.0, -2.0, 0), 0, 0xC0003C00),
    ("v_cvt_pk_u8_f32 v3, v0, v1, v2", (300.0, 1, 0x11223344), 0, 0x1122FF44),
    ("v_cvt_pk_u8_f32 v3, v0, v1, v2", (2.5, 3, 0x11223344), 0, 0x02223344),
    ("v_pack_b32_f16 v3, v0, v1", (0x11112222, 0x33334444, 0), 0, 0x44442222),
    ("v_pack_b32_f16 v3, v0, v1 op_sel:[1,1,0]", (0x11112222, 0x33334444, 0), 0, 0x33331111),
]  # fmt: skip


@pytest.mark.parametrize(("text", "inputs", "before", "after"), CASES)
def test_results(text: str, inputs: tuple[float, float, float], before: int, after: int) -> None:
    registers = {f"v{number}": value for number, value in enumerate(inputs)}
    assert set(run(text, {**registers, "v3": before}).u("v3").tolist()) == {after}


def test_lanes_before_each_lane_are_counted_in_two_halves() -> None:
    text = "v_mbcnt_lo_u32_b32 v1, s0, 0\nv_mbcnt_hi_u32_b32 v1, s1, v1"
    state = run(text, {"s0": 0xFFFFFFFF, "s1": 0xFFFFFFFF})
    assert state.u("v1").tolist() == LANE.tolist()
    assert run(text, {"s0": 0b101, "s1": 1}).u("v1")[[0, 1, 3, 33]].tolist() == [0, 1, 2, 3]


def test_every_instruction_of_these_kinds_is_tested() -> None:
    tested = {base_name(text.split()[0])[0] for text, *_ in CASES} | {"v_mbcnt_lo_u32_b32", "v_mbcnt_hi_u32_b32"}
    assert tested == {name for name in OPS if NAMES.fullmatch(name)}


def test_the_assembler_knows_every_line() -> None:
    try:
        tool = find_tool("llvm-mc")
    except ToolNotFoundError:
        pytest.skip("no llvm-mc")
    command = [str(tool), "-triple=amdgcn-amd-amdhsa", "-mcpu=gfx950", "--show-encoding"]
    text = "\n".join(text for text, *_ in CASES)
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("encoding:") == len(CASES)
