"""Matrix instructions against a float64 product in the documented layout."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from snippets import LANE, run

E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]
RNG = np.random.default_rng(7)


def fp4_registers(codes: np.ndarray, n: int) -> dict[int, np.ndarray]:
    """Four registers of an operand [n, k] of E2M1 codes: lane l holds row l % n and 32 codes from (l // n) * 32."""
    registers = {r: np.zeros(64, np.uint32) for r in range(4)}
    for lane in range(64):
        for position in range(32):
            code = int(codes[lane % n, lane // n * 32 + position])
            registers[position // 8][lane] |= np.uint32(code << 4 * (position % 8))
    return registers


def accumulator(state: object, first: int, n: int) -> np.ndarray:
    """D [n, n] from the documented register layout."""
    result = np.zeros((n, n), np.float32)
    for register in range(n * n // 64):
        row = state.f(f"v{first + register}")  # type: ignore[attr-defined]
        for lane in range(64):
            line = lane // 16 * 4 + register if n == 16 else 8 * (register // 4) + lane // 32 * 4 + register % 4
            result[line, lane % n] = row[lane]
    return result


@pytest.mark.parametrize(("n", "k"), [(16, 128), (32, 64)])
@pytest.mark.parametrize("byte", [0, 1, 2, 3])
def test_scaled_fp4_product(n: int, k: int, byte: int) -> None:
    a, b = RNG.integers(0, 16, (n, k)), RNG.integers(0, 16, (n, k))
    scales = RNG.integers(120, 135, (2, 64, 4))
    registers: dict[str, object] = {}
    for name, first, codes in (("a", 32, a), ("b", 40, b)):
        registers |= {f"v{first + r}": value for r, value in fp4_registers(codes, n).items()}
        words = scales[0 if name == "a" else 1].astype(np.uint8).view(np.uint32)[:, 0]
        registers["v50" if name == "a" else "v51"] = words
    count = n * n // 64
    registers |= {f"v{r}": np.full(64, 0.25, np.float32) for r in range(count)}
    low, high = byte & 1, byte >> 1
    text = (
        f"v_mfma_scale_f32_{n}x{n}x{k}_f8f6f4 v[0:{count - 1}], v[32:35], v[40:43], v[0:{count - 1}], v50, v51 "
        f"op_sel:[{low},{low},0] op_sel_hi:[{high},{high},0] cbsz:4 blgp:4"
    )
    values = np.array(E2M1)
    groups = np.arange(k) // 32
    lane = np.arange(n)[:, None] + n * groups[None, :]  # the lane that holds row i's scale of k
    left = values[a] * 2.0 ** (scales[0][lane, byte] - 127.0)
    right = values[b] * 2.0 ** (scales[1][lane, byte] - 127.0)
    assert np.array_equal(accumulator(run(text, registers), 0, n), (left @ right.T + 0.25).astype(np.float32))


def test_nan_scale_makes_its_rows_nan() -> None:
    registers = {f"v{r}": 0x22222222 for r in range(32, 44)} | {"v50": np.where(LANE == 3, 255, 127), "v51": 127}
    registers |= {f"v{r}": 0 for r in range(4)}
    state = run(
        "v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[32:35], v[40:43], v[0:3], v50, v51 cbsz:4 blgp:4", registers
    )
    result = accumulator(state, 0, 16)
    assert np.isnan(result[3]).all()
    assert (result[:3] == 128.0).all()


def bf16_bits(values: np.ndarray) -> np.ndarray:
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def f16_bits(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float16).view(np.uint16)


@pytest.mark.parametrize(
    ("name", "n", "k", "encode"),
    [
        ("16x16x32_bf16", 16, 32, bf16_bits), ("32x32x16_bf16", 32, 16, bf16_bits), ("16x16x32_f16", 16, 32, f16_bits),
        ("32x32x16_f16", 32, 16, f16_bits), ("16x16x16_bf16", 16, 16, bf16_bits), ("32x32x8_f16", 32, 8, f16_bits),
        ("16x16x16_f16", 16, 16, f16_bits), ("32x32x8_bf16", 32, 8, bf16_bits),
    ],
)  # fmt: skip
def test_16_bit_product(name: str, n: int, k: int, encode: Callable[[np.ndarray], np.ndarray]) -> None:
    a, b = (RNG.integers(-8, 9, (n, k)).astype(np.float64) for _ in range(2))
    each = k * n // 64  # consecutive k of a lane
    registers: dict[str, object] = {}
    for first, matrix in ((32, a), (40, b)):
        lanes = np.stack([matrix[lane % n, lane // n * each : (lane // n + 1) * each] for lane in range(64)])
        words = np.ascontiguousarray(encode(lanes)).view(np.uint32)
        registers |= {f"v{first + r}": words[:, r] for r in range(each // 2)}
    count, last = n * n // 64, each // 2 - 1
    text = f"v_mfma_f32_{name} v[0:{count - 1}], v[32:{32 + last}], v[40:{40 + last}], 0"
    assert np.array_equal(accumulator(run(text, registers), 0, n), (a @ b.T).astype(np.float32))


def test_agpr_accumulators_and_a_different_destination() -> None:
    registers = {f"v{r}": 0x3F803F80 for r in (*range(32, 36), *range(40, 44))} | {f"a{r}": 5.0 for r in range(4)}
    reads = "\nv_accvgpr_read_b32 v0, a8\nv_accvgpr_read_b32 v1, a0"
    text = "v_mfma_f32_16x16x32_bf16 a[8:11], v[32:35], v[40:43], a[0:3]" + reads
    state = run(text, registers)
    assert state.f("v0")[0] == 37.0
    assert state.f("v1")[0] == 5.0


def test_mfma_ignores_exec() -> None:
    registers = {f"v{r}": 0x3F803F80 for r in (*range(32, 36), *range(40, 44))}
    state = run("v_mfma_f32_16x16x32_bf16 v[0:3], v[32:35], v[40:43], 1.0", registers, exec_mask=1)
    assert (state.f("v3") == 33.0).all()


@pytest.mark.parametrize(
    ("kind", "words", "value"),
    [(0, 8, {0x38: 1.0, 0x7E: 448.0, 0x01: 2.0**-9}), (1, 8, {0x3C: 1.0, 0x7B: 57344.0}),
     (2, 6, {0x08: 1.0, 0x1F: 7.5}),
     (3, 6, {0x0C: 1.0, 0x1F: 28.0})],
)  # fmt: skip
def test_other_formats_of_the_scaled_product(kind: int, words: int, value: dict[int, float]) -> None:
    bits = 8 if kind < 2 else 6
    for code, expected in value.items():
        packed = sum(code << bits * position for position in range(32))
        registers: dict[str, object] = {}
        for first in (32, 40):
            registers |= {f"v{first + r}": packed >> 32 * r & 0xFFFFFFFF for r in range(words)}
        text = (
            f"v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[32:{31 + words}], v[40:{39 + words}], 0, v50, v51 "
            f"cbsz:{kind} blgp:{kind}"
        )
        state = run(text, registers | {"v50": 127, "v51": 127})
        assert state.f("v0")[0] == np.float32(128 * expected**2)


def in_order(codes: np.ndarray, n: int, first: int) -> dict[str, object]:
    """Registers of an operand [n, k] of unsigned integers: lane l holds the block l // n of row l % n, in order."""
    each = codes.shape[1] // (64 // n)
    lanes = np.stack([codes[lane % n, lane // n * each : (lane // n + 1) * each] for lane in range(64)])
    words = np.ascontiguousarray(lanes).view(np.uint32)
    return {f"v{first + register}": words[:, register].copy() for register in range(words.shape[1])}


def fp8_value(code: int, exponent_bits: int) -> float:
    """OCP FP8: E4M3 (bias 7) or E5M2 (bias 15), finite codes."""
    mantissa_bits = 7 - exponent_bits
    bias = (1 << exponent_bits - 1) - 1
    exponent, fraction = code >> mantissa_bits & (1 << exponent_bits) - 1, code & (1 << mantissa_bits) - 1
    value = (fraction + (1 << mantissa_bits if exponent else 0)) * 2.0 ** (max(exponent, 1) - bias - mantissa_bits)
    return -value if code >> 7 else value


@pytest.mark.parametrize(("n", "k"), [(16, 32), (32, 16)])
@pytest.mark.parametrize(("left", "right"), [("fp8", "fp8"), ("fp8", "bf8"), ("bf8", "fp8"), ("bf8", "bf8")])
def test_fp8_product(n: int, k: int, left: str, right: str) -> None:
    codes = [RNG.integers(0, 0x70, (n, k)) | RNG.integers(0, 2, (n, k)) << 7 for _ in range(2)]  # finite in both
    a, b = (
        np.vectorize(fp8_value)(part, 4 if kind == "fp8" else 5)
        for part, kind in zip(codes, (left, right), strict=True)
    )
    count = n * n // 64
    registers = in_order(codes[0].astype(np.uint8), n, 32) | in_order(codes[1].astype(np.uint8), n, 40)
    registers |= {f"v{r}": np.full(64, 0.5, np.float32) for r in range(count)}
    text = f"v_mfma_f32_{n}x{n}x{k}_{left}_{right} v[0:{count - 1}], v[32:33], v[40:41], v[0:{count - 1}]"
    assert np.array_equal(accumulator(run(text, registers), 0, n), (a @ b.T + 0.5).astype(np.float32))


@pytest.mark.parametrize(("n", "k"), [(16, 4), (32, 2)])
def test_f32_product(n: int, k: int) -> None:
    a, b = (RNG.integers(-8, 9, (n, k)).astype(np.float32) for _ in range(2))
    count = n * n // 64
    registers = in_order(a, n, 32) | in_order(b, n, 40)
    text = f"v_mfma_f32_{n}x{n}x{k}_f32 v[0:{count - 1}], v32, v40, 1.0"
    assert np.array_equal(accumulator(run(text, registers), 0, n), a @ b.T + np.float32(1))


@pytest.mark.parametrize(("n", "k"), [(16, 64), (32, 32), (16, 32), (32, 16)])
def test_i8_product_keeps_the_low_32_bits(n: int, k: int) -> None:
    a, b = (RNG.integers(-128, 128, (n, k)).astype(np.int8) for _ in range(2))
    count, last = n * n // 64, k * n // 256 - 1
    start = 2**31 - 1
    registers = in_order(a, n, 32) | in_order(b, n, 40) | {f"v{r}": start for r in range(count)}
    text = f"v_mfma_i32_{n}x{n}x{k}_i8 v[0:{count - 1}], v[32:{32 + last}], v[40:{40 + last}], v[0:{count - 1}]"
    sums = accumulator(run(text, registers), 0, n).view(np.int32)
    exact = a.astype(np.int64) @ b.astype(np.int64).T + start
    assert np.array_equal(sums, ((exact + 2**31) % 2**32 - 2**31).astype(np.int32))


@pytest.mark.parametrize("kind", ["f16", "bf16", "i8"])
def test_sixteen_products_of_4_by_4(kind: str) -> None:
    a, b = (RNG.integers(-8, 9, (16, 4, 4)) for _ in range(2))  # [product, row or column, k]
    bits = {"f16": f16_bits, "bf16": bf16_bits, "i8": lambda values: values.astype(np.int8)}[kind]
    registers: dict[str, object] = {f"v{r}": 0 for r in range(4)}
    for first, values in ((32, a), (40, b)):
        words = np.ascontiguousarray(bits(values.reshape(64, 4))).view(np.uint32)  # lane 4 * product + row
        registers |= {f"v{first + r}": words[:, r].copy() for r in range(words.shape[1])}
    wide = ("v32", "v40") if kind == "i8" else ("v[32:33]", "v[40:41]")
    name = "v_mfma_i32_4x4x4_16b_i8" if kind == "i8" else f"v_mfma_f32_4x4x4_16b_{kind}"
    state = run(f"{name} v[0:3], {wide[0]}, {wide[1]}, v[0:3]", registers)
    expected = np.einsum("prk,pck->prc", a, b)
    for row in range(4):
        got = state.f(f"v{row}")
        got = got.view(np.int32) if kind == "i8" else got
        assert np.array_equal(got.reshape(16, 4), expected[:, row].astype(got.dtype))
