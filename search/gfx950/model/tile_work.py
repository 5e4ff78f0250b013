"""What Triton makes of a GEMM tile, estimated before compilation: instructions, registers, LDS.

The estimates are fits to compiled kernels, good for ranking (``benchmarks/estimate_against_compiler.py`` shows how
good); every argument may be one value or one array.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.device import GFX950
from kernels.families.stages import Gemm
from search.gfx950.machine import Machine, Number

ROW_BYTES = 17 / 32  # of MXFP4: half a byte a value and one scale byte a block of 32
LANES = GFX950.architecture.wave
MFMA_CLKS = 16  # of 16x16x128 with FP4 operands
SPILL_CLKS = 8  # of vector memory for each spilled register and step: stored once, loaded once
# Vector instructions, fitted to compiled kernels of 100 random configurations (Triton 3.9).
HARDWARE_VALU = 7.0  # for each value of A that a lane quantises with the conversion instruction
SOFTWARE_VALU = 20.0  # with integer arithmetic
WEIGHT_VALU = 1.5  # for each register of weights
STEP_VALU = 20.0  # for everything else in a step
STORE_VALU = 1.5  # for each accumulator, once
PROLOGUE_VALU = 130.0  # once
# Registers of a lane, fitted to the same kernels (median error 15 %).
BASE_VGPRS = 48.0
ACCUMULATOR_VGPRS = 0.5  # for each accumulator
OPERAND_VGPRS = 0.8  # for each register of MFMA operands
A_VGPRS = 1.4  # for each value of A that a lane quantises
WEIGHT_VGPRS = 0.5  # for each register of weights
A_STAGE_VGPRS = 1.25  # for each value of A and stage beyond the second
WEIGHT_STAGE_VGPRS = 1.3  # for each register of weights and stage beyond the second
SCALE_LDS_CLKS = 60.0  # of a step: scales cross the LDS as single bytes
SHARED_ROWS = 128  # from this BLOCK_M on, waves share weights whatever BLOCK_N is


def cdiv(value: Number, divisor: Number) -> Number:
    """Quotient rounded up."""
    quotient: Number = np.ceil(np.asarray(value) / divisor)
    return quotient


def quantize_valu(quantizer: Any) -> Number:
    """Vector instructions for each value that a lane quantises; 0 where it quantises none."""
    if quantizer is None:
        return 0.0
    instructions: Number = np.where(np.asarray(quantizer) == "hardware", HARDWARE_VALU, SOFTWARE_VALU)
    return instructions


@dataclass(frozen=True)
class TileWork:
    """What Triton makes of a GEMM tile: a wave's work in one step, and the resources of a workgroup.

    A wave's part of the tile is 32 columns by 32 rows (16 where a tile has no more and the instruction allows it).
    Where that leaves fewer parts than waves, waves repeat each other's work.

    Args:
        matrix_instr_nonkdim: 16 or 32; 0 counts as 16.
        quantizer: ``hardware`` or ``software`` (or a column of these) where A is bf16 and quantised in the loop;
            None where A is packed.
    """

    BLOCK_M: Number
    BLOCK_N: Number
    BLOCK_K: Number
    num_warps: Number
    num_stages: Number
    matrix_instr_nonkdim: Number
    quantizer: Any

    @classmethod
    def of(cls, stage: Gemm) -> TileWork:
        """Of a Triton GEMM; there is nothing to quantise where A was packed by a stage before."""
        c = stage.tile
        quantizer = None if stage.staged else c.quantizer
        return cls(c.BLOCK_M, c.BLOCK_N, c.BLOCK_K, c.num_warps, c.num_stages, c.matrix_instr_nonkdim, quantizer)

    @property
    def part_m(self) -> Number:
        """Rows of a wave's part."""
        return np.clip(np.maximum(self.BLOCK_M, self.matrix_instr_nonkdim), 16, 32)

    @property
    def parts(self) -> Number:
        """Parts of the tile that one wave works through."""
        count = np.maximum(1, self.BLOCK_M / self.part_m) * np.maximum(1, np.asarray(self.BLOCK_N) / 32)
        return cdiv(count, self.num_warps)

    @property
    def shared_weights(self) -> Number:
        """Whether several waves use the same weights, which then go through the LDS."""
        fewer: Number = np.asarray(self.BLOCK_N) / 32 < self.num_warps
        return np.logical_or(fewer, np.asarray(self.BLOCK_M) >= SHARED_ROWS)

    @property
    def mfma(self) -> Number:
        """Instructions of 16x16x128 a wave and step, or half as many of 32x32x64 that take twice as long."""
        return self.parts * (self.part_m / 16) * 2 * self.BLOCK_K / 128

    @property
    def values(self) -> Number:
        """Values of A that a lane loads in a step."""
        return np.asarray(self.BLOCK_M) * self.BLOCK_K / (LANES * self.num_warps)

    @property
    def weights(self) -> Number:
        """Registers of weights that a lane loads in a step."""
        return np.asarray(self.BLOCK_N) * self.BLOCK_K / (8 * LANES * self.num_warps)

    @property
    def accumulators(self) -> Number:
        """Elements of C that a lane holds."""
        return np.maximum(self.BLOCK_M, 16) * self.BLOCK_N / (LANES * self.num_warps)

    @property
    def valu(self) -> Number:
        """Vector instructions a wave and step."""
        return STEP_VALU + WEIGHT_VALU * self.weights + quantize_valu(self.quantizer) * self.values

    @property
    def operand_rows(self) -> tuple[Number, Number]:
        """Rows of A and columns of B that one wave multiplies."""
        rows = self.part_m * np.maximum(1, np.sqrt(self.parts))
        return rows, 32 * self.parts * self.part_m / rows

    @property
    def lds_clks(self) -> Number:
        """Clocks of a wave's LDS accesses in a step, at 64 bytes a clock."""
        rows, columns = self.operand_rows
        read = (rows + columns * self.shared_weights) * self.BLOCK_K / 2
        stored = (self.BLOCK_M + self.BLOCK_N * self.shared_weights) * self.BLOCK_K / 2 / self.num_warps
        return (read + stored) / LANES + SCALE_LDS_CLKS

    @property
    def lds_bytes(self) -> Number:
        """LDS of a workgroup: a buffer a stage for what is loaded through it, one for a quantised A."""
        stages = np.asarray(self.num_stages)
        a_tile = self.BLOCK_M * np.asarray(self.BLOCK_K) / 2
        a_buffers = np.where(stages > 1, stages, 1) if self.quantizer is None else 1
        b_tile = self.BLOCK_N * np.asarray(self.BLOCK_K) * ROW_BYTES * self.shared_weights
        return a_tile * a_buffers + b_tile * np.where(stages > 1, stages, 0.5)

    @property
    def vgprs(self) -> Number:
        """Registers of a lane that the kernel wants; more than there are means spills."""
        rows, columns = self.operand_rows
        operands = (rows + columns) * self.BLOCK_K / 2 / (4 * LANES)
        extra = np.maximum(0, np.asarray(self.num_stages) - 2)
        quantised = 0.0 if self.quantizer is None else self.values * (A_VGPRS + A_STAGE_VGPRS * extra)
        weights = self.weights * (WEIGHT_VGPRS + WEIGHT_STAGE_VGPRS * extra)
        held = ACCUMULATOR_VGPRS * self.accumulators + OPERAND_VGPRS * operands
        wanted: Number = BASE_VGPRS + held + quantised + weights
        return wanted

    def vgpr_limit(self, machine: Machine) -> Number:
        """Registers that a lane can have in a workgroup of this many waves."""
        limit: Number = machine.vgprs / np.ceil(np.asarray(self.num_warps) / machine.simds)
        return limit
