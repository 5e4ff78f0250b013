"""Matrix instructions: scaled FP4/FP6/FP8 MFMA, and FP8, bf16, f16, f32, i8; neither sparse ones nor those of f64.

Layouts: AMD matrix instruction calculator and the MI300 ISA guide, section "Matrix arithmetic instructions"; the scaled
f8f6f4 forms from LLVM ``AMDGPUUsage`` and disassembly. Lane l holds row (A) or column (B) l % n and the k block l // n;
register r of D holds row 4*(64//n)*(r//4) + 4*(l//n) + r%4, column l % n. Products and sums are formed in
float64 and rounded to float32 once; the hardware's own intermediate rounding is not documented.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from search.gfx950.simulator.decode.bind import Binder, Context, check_modifiers, make_instruction, resolve
from search.gfx950.simulator.decode.modifiers import int_list
from search.gfx950.simulator.decode.op import Instruction, InstructionClass
from search.gfx950.simulator.decode.text import Statement
from search.gfx950.simulator.instructions.small_floats import BF8, E2M1_SIGNED, E8M0, FP8, small_float_values
from search.gfx950.simulator.state.arrays import Array
from search.gfx950.simulator.state.findings import UnknownInstructionError
from search.gfx950.simulator.state.registers import CONSTANT, parse_operand
from search.gfx950.simulator.state.state import LANES, WaveGroup

# Two E2M1 values of a byte, low nibble first, as one 16-byte item that ``take`` moves at once.
_E2M1_PAIRS = np.ascontiguousarray(
    np.stack([E2M1_SIGNED[np.arange(256) & 15], E2M1_SIGNED[np.arange(256) >> 4]], axis=1)
).view(np.complex128)[:, 0]
FORMATS = ("fp8", "bf8", "fp6", "bf6", "fp4")


@dataclass(frozen=True)
class Tile:
    """Shape of one matrix instruction: D[n, n] += A[n, k] B[k, n]."""

    n: int
    k: int

    def __str__(self) -> str:
        """As in mnemonics."""
        return f"{self.n}x{self.n}x{self.k}"

    @property
    def groups(self) -> int:
        """Blocks of k that different lanes hold."""
        return LANES // self.n

    @property
    def accumulators(self) -> int:
        """Registers of C and D."""
        return self.n * self.n // LANES


def lane_rows(g: WaveGroup, first: int, registers: int, tile: Tile) -> Array:
    """Operand registers as uint32 [waves, n, k groups, registers]."""
    block = g.block(first, registers).reshape(registers, g.count, tile.groups, tile.n)
    return np.ascontiguousarray(block.transpose(1, 3, 2, 0))


def fp4_operand(g: WaveGroup, first: int, tile: Tile) -> Array:
    """E2M1 operand as float64 [waves, n, k groups, 32]."""
    raw = lane_rows(g, first, 4, tile).view(np.uint8)
    return np.asarray(_E2M1_PAIRS.take(raw)).view(np.float64).reshape(g.count, tile.n, tile.groups, 32)


_FP6 = small_float_values(2, 3, 1, "none")
_BF6 = small_float_values(3, 2, 3, "none")


def _wide_operand(values: Array) -> Callable[[WaveGroup, int, Tile], Array]:
    def read(g: WaveGroup, first: int, tile: Tile) -> Array:
        # Which k each byte stands for does not matter here: both operands use the same order.
        raw = lane_rows(g, first, 8, tile).view(np.uint8)
        return values.take(raw).reshape(g.count, tile.n, tile.groups, 32)

    return read


def _six_bit_operand(values: Array) -> Callable[[WaveGroup, int, Tile], Array]:
    def read(g: WaveGroup, first: int, tile: Tile) -> Array:
        raw = lane_rows(g, first, 6, tile).view(np.uint8)
        bits = np.unpackbits(raw, axis=-1, bitorder="little").reshape(g.count, tile.n, tile.groups, 32, 6)
        codes = (bits << np.arange(6, dtype=np.uint8)).sum(axis=-1)
        return np.asarray(values.take(codes))

    return read


_READERS: tuple[tuple[int, Callable[[WaveGroup, int, Tile], Array]], ...] = (
    (8, _wide_operand(FP8.values)), (8, _wide_operand(BF8.values)),
    (6, _six_bit_operand(_FP6)), (6, _six_bit_operand(_BF6)), (4, fp4_operand),
)  # fmt: skip


def accumulator_matrix(g: WaveGroup, first: int, tile: Tile, dtype: Any = np.float32) -> Array:
    """C registers as float32, or integers, [waves, n, n]."""
    n, registers = tile.n, tile.accumulators
    block = g.block(first, registers).view(dtype)
    # Row = 4 * groups * (r // 4) + 4 * (l // n) + r % 4.
    shaped = block.reshape(registers // 4, 4, g.count, tile.groups, n)
    return np.asarray(shaped.transpose(2, 0, 3, 1, 4).reshape(g.count, n, n))


def write_accumulator(g: WaveGroup, first: int, tile: Tile, value: Array, dtype: Any = np.float32) -> None:
    """D registers from numbers [waves, n, n]; MFMA ignores EXEC."""
    n, registers = tile.n, tile.accumulators
    block = g.block(first, registers).view(dtype).reshape(registers // 4, 4, g.count, tile.groups, n)
    block[...] = value.reshape(g.count, registers // 4, tile.groups, 4, n).transpose(1, 3, 0, 2, 4)


def _multiply(
    g: WaveGroup, tile: Tile, left: Array, right: Array, c: int | None, constant: float, d: int, dtype: Any = np.float32
) -> None:
    product = np.matmul(left, right.transpose(0, 2, 1))
    product += accumulator_matrix(g, c, tile, dtype) if c is not None else constant
    write_accumulator(g, d, tile, product if dtype is np.float32 else _wrapped(product), dtype)


def _wrapped(product: Array) -> Array:
    """Sums of integers, exact in float64, as the hardware keeps them: the low 32 bits."""
    return product.astype(np.int64).astype(np.int32)


def _scale_byte(statement: Statement, position: int) -> int:
    low = int_list(statement.modifiers.get("op_sel", "[0,0,0]"))[position]
    high = int_list(statement.modifiers.get("op_sel_hi", "[0,0,0]"))[position]
    return low + 2 * high


def _accumulator(text: str, registers: int, context: Context, dtype: Any = np.float32) -> tuple[int | None, float]:
    operand = parse_operand(text)
    if operand.index is None:
        bits = context.constant(text, "f32" if dtype is np.float32 else "u32")
        return None, float(context.constants[bits - CONSTANT].view(dtype)[0, 0])
    if operand.count != registers:
        raise UnknownInstructionError(f"{registers} accumulators expected, found {text}")
    return operand.index, 0.0


def _operand(text: str, count: int) -> int:
    operand = parse_operand(text)
    if operand.index is None or not operand.is_vector or operand.count < count:
        raise UnknownInstructionError(f"{count} vector registers expected, found {text}")
    return operand.index


def _bind_scaled(tile: Tile, with_scales: bool) -> Binder:
    def bind(statement: Statement, context: Context) -> Instruction:
        check_modifiers(statement, frozenset({"op_sel", "op_sel_hi", "cbsz", "blgp"}))
        kinds = [int(statement.modifiers.get(key) or "0", 0) for key in ("cbsz", "blgp")]
        if max(kinds) > 4 or (min(kinds) < 2) != (max(kinds) < 2):
            # FP8 lanes hold their k in another order than FP4 and FP6 lanes; the mix is not documented.
            raise UnknownInstructionError(f"matrix formats {kinds} (cbsz, blgp) are not modelled")
        texts = statement.operands
        (left_count, left), (right_count, right) = (_READERS[kind] for kind in kinds)
        d, a, b = _operand(texts[0], tile.accumulators), _operand(texts[1], left_count), _operand(texts[2], right_count)
        c, constant = _accumulator(texts[3], tile.accumulators, context)
        scales = [resolve(parse_operand(text), "u32", context) for text in texts[4:6]] if with_scales else []
        shifts = [np.uint32(8 * _scale_byte(statement, position)) for position in range(2)]

        def operand(g: WaveGroup, position: int, first: int, read: Callable[[WaveGroup, int, Tile], Array]) -> Array:
            values = read(g, first, tile)
            if scales:
                row = np.broadcast_to(g.u[scales[position]], (g.count, LANES))
                factor = E8M0.take((row >> shifts[position]) & np.uint32(0xFF))
                values *= factor.reshape(g.count, tile.groups, tile.n).transpose(0, 2, 1)[..., None]
            return values.reshape(g.count, tile.n, tile.k)

        def run(g: WaveGroup) -> None:
            _multiply(g, tile, operand(g, 0, a, left), operand(g, 1, b, right), c, constant, d)

        reads = [*range(a, a + left_count), *range(b, b + right_count), *(s for s in scales if s < CONSTANT)]
        return _matrix_instruction(statement, run, tile.accumulators, reads, c, d)

    return bind


def _matrix_instruction(
    statement: Statement, run: Callable[[WaveGroup], None], sums: int, reads: list[int], c: int | None, d: int
) -> Instruction:
    reads = reads + (list(range(c, c + sums)) if c is not None else [])
    return make_instruction(
        statement, run, InstructionClass.MFMA, reads, tuple(range(d, d + sums)),
        sinks=(("mfma", frozenset(reads)),),
    )  # fmt: skip


_VALUES: Mapping[str, Callable[[Array], Array]] = {  # float64, of operand registers
    "f16": lambda raw: raw.view(np.float16).astype(np.float64),
    "bf16": lambda raw: (raw.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64),
    "f32": lambda raw: raw.view(np.float32).astype(np.float64),
    "i8": lambda raw: raw.view(np.int8).astype(np.float64),
    "fp8": lambda raw: FP8.values.take(raw.view(np.uint8)),
    "bf8": lambda raw: BF8.values.take(raw.view(np.uint8)),
}


@dataclass(frozen=True)
class _Operands:
    """What the registers of A and B hold, by the names of the types."""

    left: str
    right: str

    @property
    def bytes(self) -> int:
        """Of an element."""
        return {"f32": 4, "f16": 2, "bf16": 2}.get(self.left, 1)

    @property
    def sums(self) -> Any:
        """Type of the accumulators."""
        return np.int32 if self.left == "i8" else np.float32


def _bind_plain(tile: Tile, kinds: _Operands) -> Binder:
    """Lane l holds the elements of row or column l % n and of block l // n of k, in order."""
    registers, sums = tile.k // tile.groups * kinds.bytes // 4, kinds.sums
    left_values, right_values = _VALUES[kinds.left], _VALUES[kinds.right]

    def bind(statement: Statement, context: Context) -> Instruction:
        check_modifiers(statement, frozenset())
        texts = statement.operands
        d, a, b = _operand(texts[0], tile.accumulators), _operand(texts[1], registers), _operand(texts[2], registers)
        c, constant = _accumulator(texts[3], tile.accumulators, context, sums)

        def run(g: WaveGroup) -> None:
            left = left_values(lane_rows(g, a, registers, tile)).reshape(g.count, tile.n, tile.k)
            right = right_values(lane_rows(g, b, registers, tile)).reshape(g.count, tile.n, tile.k)
            _multiply(g, tile, left, right, c, constant, d, sums)

        reads = [*range(a, a + registers), *range(b, b + registers)]
        return _matrix_instruction(statement, run, tile.accumulators, reads, c, d)

    return bind


_BLOCKS, _SIDE = 16, 4  # products of 4x4x4 in one instruction, one for each four lanes


def _bind_blocks(kind: str) -> Binder:
    """Lane l holds row or column l % 4 of product l // 4, all four k; register r of D its row r, column l % 4."""
    operands = _Operands(kind, kind)
    registers, dtype = operands.bytes, operands.sums

    def values(g: WaveGroup, first: int) -> Array:
        lanes = np.ascontiguousarray(g.block(first, registers).transpose(1, 2, 0))
        return _VALUES[kind](lanes).reshape(g.count, _BLOCKS, _SIDE, _SIDE)

    def bind(statement: Statement, context: Context) -> Instruction:
        check_modifiers(statement, frozenset())
        texts = statement.operands
        d, a, b = _operand(texts[0], _SIDE), _operand(texts[1], registers), _operand(texts[2], registers)
        c, constant = _accumulator(texts[3], _SIDE, context, dtype)

        def run(g: WaveGroup) -> None:
            product = values(g, a) @ values(g, b).swapaxes(2, 3)  # [waves, block, row, column]
            sums = product.transpose(2, 0, 1, 3).reshape(_SIDE, g.count, LANES)
            sums += g.block(c, _SIDE).view(dtype) if c is not None else constant
            g.block(d, _SIDE).view(dtype)[...] = sums if dtype is np.float32 else _wrapped(sums)

        reads = [*range(a, a + registers), *range(b, b + registers)]
        return _matrix_instruction(statement, run, _SIDE, reads, c, d)

    return bind


_HALF_TILES = (Tile(16, 32), Tile(32, 16), Tile(16, 16), Tile(32, 8))
_PLAIN: Mapping[str, tuple[Tile, ...]] = {  # by the end of the mnemonic
    "f16": _HALF_TILES,
    "bf16": _HALF_TILES,
    "f32": (Tile(16, 4), Tile(32, 2)),
    "i8": (Tile(16, 64), Tile(32, 32), Tile(16, 32), Tile(32, 16)),
    **{f"{left}_{right}": (Tile(16, 32), Tile(32, 16)) for left in ("fp8", "bf8") for right in ("fp8", "bf8")},
}


def _binders() -> Iterator[tuple[str, Binder]]:
    for tile in (Tile(16, 128), Tile(32, 64)):
        yield f"v_mfma_scale_f32_{tile}_f8f6f4", _bind_scaled(tile, True)
        yield f"v_mfma_f32_{tile}_f8f6f4", _bind_scaled(tile, False)
    for types, tiles in _PLAIN.items():
        left, _, right = types.partition("_")
        for tile in tiles:
            yield f"v_mfma_{_sums(types)}_{tile}_{types}", _bind_plain(tile, _Operands(left, right or left))
    for kind in ("f16", "bf16", "i8"):
        yield f"v_mfma_{_sums(kind)}_4x4x4_16b_{kind}", _bind_blocks(kind)


def _sums(types: str) -> str:
    return "i32" if types == "i8" else "f32"


BINDERS: Mapping[str, Binder] = MappingProxyType(dict(_binders()))
