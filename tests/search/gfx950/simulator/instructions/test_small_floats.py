"""FP8 and BF8 beside torch's, what is beyond them by hand, and f16 sources of f32 arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from snippets import run

from search.gfx950.simulator.state.findings import UnknownInstructionError

INF, NAN = float("inf"), float("nan")
TORCH = {"fp8": torch.float8_e4m3fn, "bf8": torch.float8_e5m2}
BYTES = np.arange(256, dtype=np.uint32)
OLD = 0xABCD1234  # of a destination of which one half changes


def torch_values(name: str) -> Any:
    """All values of the format by code, float32."""
    return torch.arange(256, dtype=torch.uint8).view(TORCH[name]).float().numpy()


def samples(name: str) -> Any:
    """Values of the format, the middles between them and what is just beside these, [n, 64] float32."""
    finite = np.sort(torch_values(name)[np.isfinite(torch_values(name))])
    middle = ((finite[1:].astype(np.float64) + finite[:-1]) / 2).astype(np.float32)
    beside = [np.nextafter(middle, np.float32(side * np.inf)) for side in (-1, 1)]
    return np.resize(np.concatenate([finite, middle, *beside, [-0.0, 1e-30]]).astype(np.float32), (16, 64))


def torch_codes(name: str, values: Any) -> Any:
    """What torch rounds float32 to, as numbers."""
    return torch.from_numpy(np.ascontiguousarray(values)).to(TORCH[name]).view(torch.uint8).numpy().astype(np.uint32)


@pytest.mark.parametrize("name", TORCH)
def test_pairs_of_f32_become_what_torch_rounds_them_to(name: str) -> None:
    values = samples(name)
    assert values.size >= 1020
    for low, high in zip(values, values[::-1], strict=True):
        state = run(f"v_cvt_pk_{name}_f32 v2, v0, v1", {"v0": low, "v1": high, "v2": OLD})
        assert np.array_equal(state.u("v2"), torch_codes(name, low) | torch_codes(name, high) << 8 | 0xABCD0000)
        state = run(f"v_cvt_pk_{name}_f32 v2, v0, v1 op_sel:[0,0,1]", {"v0": low, "v1": high, "v2": OLD})
        assert np.array_equal(state.u("v2"), torch_codes(name, low) << 16 | torch_codes(name, high) << 24 | 0x1234)


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("fp8", 448.0, 0x7E),
        ("fp8", 464.0, 0x7E),  # a tie between 448 and 480, which is no number: even
        ("fp8", 464.25, 0x7F),  # NaN, as E4M3 has no Inf
        ("fp8", -INF, 0xFF),
        ("fp8", NAN, 0x7F),
        ("bf8", 57344.0, 0x7B),
        ("bf8", 61440.0, 0x7C),  # a tie between the largest number and Inf: even
        ("bf8", -70000.0, 0xFC),
        ("bf8", INF, 0x7C),
        ("bf8", NAN, 0x7F),
    ],
)
def test_what_is_too_large_by_hand(name: str, value: float, code: int) -> None:
    state = run(f"v_cvt_pk_{name}_f32 v2, v0, v1", {"v0": value, "v1": 1.0, "v2": 0})
    assert state.u("v2")[0] & 0xFF == code


@pytest.mark.parametrize("name", TORCH)
@pytest.mark.parametrize("byte", range(4))
def test_each_byte_becomes_its_value(name: str, byte: int) -> None:
    for codes in BYTES.reshape(4, 64):
        word = 0x01010101 & ~(0xFF << 8 * byte) | codes << np.uint32(8 * byte)
        expected = torch_values(name)[codes]
        state = run(f"v_cvt_f32_{name}_sdwa v1, v0 src0_sel:BYTE_{byte}", {"v0": word})
        assert np.array_equal(state.f("v1"), expected, equal_nan=True)
        selection = f"op_sel:[{byte & 1},{byte >> 1},0]"
        state = run(f"v_cvt_scalef32_f32_{name} v1, v0, v2 {selection}", {"v0": word, "v2": 0.0625})
        assert np.array_equal(state.f("v1"), expected / 16, equal_nan=True)


@pytest.mark.parametrize("name", TORCH)
@pytest.mark.parametrize("word", [0, 1])
def test_pairs_become_their_values(name: str, word: int) -> None:
    low, high = BYTES[64:128], BYTES[192:] - 64
    source = (low | high << np.uint32(8)) << np.uint32(16 * word)
    want = [torch_values(name)[codes] for codes in (low, high)]
    state = run(f"v_cvt_pk_f32_{name}_sdwa v[2:3], v0 src0_sel:WORD_{word}", {"v0": source})
    assert all(
        np.array_equal(state.f(row), values, equal_nan=True) for row, values in zip(("v2", "v3"), want, strict=True)
    )
    text = f"v_cvt_scalef32_pk_f32_{name} v[2:3], v0, v1 op_sel:[{word},0,0]"
    state = run(text, {"v0": source, "v1": 6.0})  # only the exponent of the scale counts: 4
    assert all(
        np.array_equal(state.f(row), 4 * values, equal_nan=True) for row, values in zip(("v2", "v3"), want, strict=True)
    )
    for target, dtype in (("f16", torch.float16), ("bf16", torch.bfloat16)):
        state = run(f"v_cvt_scalef32_pk_{target}_{name} v2, v0, v1 op_sel:[{word},0,0]", {"v0": source, "v1": 0.5})
        halves = [(state.u("v2") >> shift).astype(np.uint16) for shift in (0, 16)]
        for half, values in zip(halves, want, strict=True):
            got = torch.from_numpy(half).view(dtype)
            assert torch.equal(got.nan_to_num(99.0), torch.from_numpy(values / 2).to(dtype).nan_to_num(99.0))


@pytest.mark.parametrize("name", TORCH)
def test_scaled_pairs_are_rounded_once_behind_the_scale(name: str) -> None:
    for values in samples(name):
        low, high = torch_codes(name, values), torch_codes(name, values[::-1])
        registers = {"v0": values * 8, "v1": values[::-1] * 8, "v2": OLD, "v3": 8.0}
        state = run(f"v_cvt_scalef32_pk_{name}_f32 v2, v0, v1, v3", registers)
        assert np.array_equal(state.u("v2"), low | high << 8 | 0xABCD0000)
        state = run(f"v_cvt_scalef32_pk_{name}_f32 v2, v0, v1, v3 op_sel:[0,0,0,1]", registers)
        assert np.array_equal(state.u("v2"), low << 16 | high << 24 | 0x1234)


@pytest.mark.parametrize(("source", "one", "three"), [("f16", 0x3C00, 0x4200), ("bf16", 0x3F80, 0x4040)])
def test_scaled_pairs_of_one_register_by_hand(source: str, one: int, three: int) -> None:
    word = one | (three | 0x8000) << 16  # 1 and -3, divided by 2: 0.5 is 0x30 and -1.5 is 0xBC in E4M3
    state = run(f"v_cvt_scalef32_pk_fp8_{source} v1, v0, v2 op_sel:[0,0,1]", {"v0": word, "v1": OLD, "v2": 2.0})
    assert state.u("v1")[0] == 0xBC301234


def test_a_scaled_conversion_of_what_is_too_large_is_refused() -> None:
    with pytest.raises(UnknownInstructionError, match="beyond the format"):
        run("v_cvt_scalef32_pk_fp8_f32 v2, v0, v1, v3", {"v0": 1000.0, "v1": 1.0, "v2": 0, "v3": 1.0})


HALVES = 0xC0003E00  # 1.5 in the low half, -2 in the high one


@pytest.mark.parametrize(
    ("operands", "result"),
    [
        ("v0, v1, v2", 10.0 * 3.0 + 0.25),
        ("v3, v1, v2 op_sel_hi:[1,0,0]", 1.5 * 3.0 + 0.25),
        ("v3, v1, v2 op_sel:[1,0,0] op_sel_hi:[1,0,0]", -2.0 * 3.0 + 0.25),
        ("-v3, v1, v2 op_sel_hi:[1,0,0]", -1.5 * 3.0 + 0.25),
        ("|v3|, v1, -v2 op_sel:[1,0,0] op_sel_hi:[1,0,0]", 2.0 * 3.0 - 0.25),
        ("v3, v3, v3 op_sel:[0,1,1] op_sel_hi:[1,1,1]", 1.5 * -2.0 - 2.0),
    ],
)
def test_mixed_multiplication_and_addition_by_hand(operands: str, result: float) -> None:
    registers = {"v0": 10.0, "v1": 3.0, "v2": 0.25, "v3": HALVES}
    assert run(f"v_fma_mix_f32 v4, {operands}", registers).f("v4")[0] == result
    bits = int(np.float16(result).view(np.uint16))
    assert run(f"v_fma_mixlo_f16 v4, {operands}", registers | {"v4": OLD}).u("v4")[0] == 0xABCD0000 | bits
    assert run(f"v_fma_mixhi_f16 v4, {operands}", registers | {"v4": OLD}).u("v4")[0] == bits << 16 | 0x1234


def test_a_mixed_sum_is_rounded_once() -> None:
    tiny = 2.0**-23
    registers = {"v0": 1.0 + tiny, "v1": 1.0 - tiny, "v2": -1.0}  # the product is 1 - 2**-46
    assert run("v_fma_mix_f32 v3, v0, v1, v2", registers).f("v3")[0] == -(2.0**-46)


def test_a_constant_as_f16_is_refused() -> None:
    with pytest.raises(UnknownInstructionError, match=r"the constant 1\.0 as f16"):
        run("v_fma_mix_f32 v3, v0, 1.0, v2 op_sel_hi:[0,1,0]", {"v0": 1.0, "v2": 1.0})


def test_lanes_that_are_off_keep_the_destination() -> None:
    state = run("v_cvt_pk_fp8_f32 v2, v0, v1", {"v0": 1.0, "v1": 1.0, "v2": OLD}, exec_mask=2)
    assert state.u("v2")[:2].tolist() == [OLD, 0xABCD3838]


def test_the_other_half_stays_undefined() -> None:
    text = "v_cvt_pk_fp8_f32 v2, v0, v1\n{}\nds_write_b16 v3, v2\n"
    defined = {"v0": 1.0, "v1": 1.0, "v2": 0, "v3": 0}
    assert run(text.format("v_nop"), defined, undefined="v2").findings == []
    state = run(text.format("v_lshrrev_b32_e32 v3, 16, v2"), defined, undefined="v2")
    assert state.kinds() == {"uninitialised_address"}
