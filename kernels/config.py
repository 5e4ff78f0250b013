"""Knobs of the Triton families. A field name is also the YAML key, the Optuna parameter and the results column.

Legality is a list of :class:`Rule` values whose predicates use only arithmetic and comparisons, so that one
definition judges one configuration (:meth:`KernelConfig.check`) and a whole table of columns (:func:`violations`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import numpy as np

from kernels.device import DeviceKey
from kernels.problem import GemmShape

MAX_TENSOR_ELEMENTS = 1 << 20  # of one Triton block (triton.language.core.TRITON_MAX_TENSOR_NUMEL)
ACCUMULATORS_PER_LANE = 512  # Arch + Acc VGPRs of one lane (AMD CDNA 3 and 4 ISA manuals)
LANES = 64  # of one wave

Predicate = Callable[[Any, GemmShape, DeviceKey], Any]


@dataclass(frozen=True)
class Rule:
    """A condition that a legal configuration meets, and what to say where it does not.

    Args:
        holds: Predicate of (configuration or columns, shape, device); a bool or a boolean array.
        reason: Text for the user; ``{FIELD}`` is replaced by the configuration's value.
    """

    holds: Predicate
    reason: str


@dataclass(frozen=True)
class KernelConfig:
    """What the configuration of every family can do; a subclass adds the knobs, all with defaults, and the rules."""

    RULES: ClassVar[tuple[Rule, ...]] = ()

    def check(self, shape: GemmShape, device: DeviceKey) -> str | None:
        """Why this configuration cannot run ``shape`` on ``device``, or None if it can."""
        for rule in self.RULES:
            if not rule.holds(self, shape, device):
                return rule.reason.format(**self.to_dict())
        return None

    def to_dict(self) -> dict[str, int | str]:
        """Field values by name, in declaration order."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def repeatable(self) -> bool:
        """Whether this choice of knobs leaves the order of every sum fixed; the family may vary it all the same."""
        return True


def _power_of_two(value: Any) -> Any:
    return (value & (value - 1)) == 0


def multiple(name: str, of: int) -> Rule:
    """The knob is a power of two and a multiple of ``of``."""

    def holds(c: Any, shape: GemmShape, device: DeviceKey) -> Any:
        value = getattr(c, name)
        return (value >= of) & (value % of == 0) & _power_of_two(value)

    return Rule(holds, f"{name}={{{name}}} is not a power of two and a multiple of {of}")


def at_least_one(name: str) -> Rule:
    """The knob is positive."""
    return Rule(lambda c, shape, device: getattr(c, name) >= 1, f"{name}={{{name}}} is less than 1")


def _accumulators_fit(c: Any, shape: GemmShape, device: DeviceKey) -> Any:
    lanes = c.num_warps * (LANES if device.is_amd else 32)
    return lanes * (ACCUMULATORS_PER_LANE if device.is_amd else 255) >= c.BLOCK_M * c.BLOCK_N


TILE_RULES = (
    multiple("BLOCK_M", 1),
    multiple("BLOCK_N", 16),  # a row group of the shuffled weight
    multiple("BLOCK_K", 64),  # a column group of the shuffled weight
    at_least_one("GROUP_M"),
    multiple("num_warps", 1),
    at_least_one("num_stages"),
    at_least_one("num_xcds"),
    Rule(lambda c, s, d: c.BLOCK_N <= 256, "BLOCK_N={BLOCK_N} exceeds 256, the row padding of the shuffled scales"),
    Rule(lambda c, s, d: c.num_warps <= 16, "num_warps={num_warps} exceeds 16, the waves of a workgroup"),
    Rule(
        lambda c, s, d: (c.BLOCK_M * c.BLOCK_K <= MAX_TENSOR_ELEMENTS)
        & (c.BLOCK_N * c.BLOCK_K <= MAX_TENSOR_ELEMENTS)
        & (c.BLOCK_M * c.BLOCK_N <= MAX_TENSOR_ELEMENTS),
        "a tile of BLOCK_M={BLOCK_M}, BLOCK_N={BLOCK_N}, BLOCK_K={BLOCK_K} exceeds Triton's block limit",
    ),
    Rule(
        _accumulators_fit,
        "BLOCK_M={BLOCK_M} x BLOCK_N={BLOCK_N} accumulators exceed the registers of {num_warps} waves",
    ),
    Rule(
        lambda c, s, d: (c.matrix_instr_nonkdim == 16) | (c.matrix_instr_nonkdim == 32) | (c.matrix_instr_nonkdim == 0),
        "matrix_instr_nonkdim={matrix_instr_nonkdim} is none of 0, 16, 32",
    ),
    Rule(
        lambda c, s, d: (c.quantizer == "software") | d.has_scaled_fp4,
        "quantizer=hardware needs the FP4 conversion of gfx950",
    ),
    Rule(
        lambda c, s, d: (c.a_operand == "e2m1") | (not d.has_scaled_fp4),
        "a_operand={a_operand} gives up the FP4 matrix unit of gfx950",
    ),
)
SPLIT_RULES = (at_least_one("split_k"), Rule(lambda c, s, d: c.split_k <= 65535, "split_k={split_k} exceeds the grid"))


@dataclass(frozen=True)
class TileConfig(KernelConfig):
    """Tile and launch knobs that every Triton family shares; also the configuration of ``fused``.

    Args:
        BLOCK_M: Rows of C a program computes.
        BLOCK_N: Columns of C a program computes.
        BLOCK_K: Elements of K a program consumes each step.
        GROUP_M: Tile rows that are visited together, so that neighbouring programs share weights in L2.
        num_warps: Waves of one program.
        num_stages: Software-pipelining depth of the K loop.
        waves_per_eu: Hint of the AMD compiler: aim at this many waves a SIMD; 0 gives no hint.
        matrix_instr_nonkdim: Rows and columns of the MFMA instruction, 16 or 32; 0 lets the compiler choose.
        cache_modifier: Of the weight loads: "" or ".cg" (cached in L2 only).
        num_xcds: Dies over which neighbouring tiles are kept together; 1 keeps the hardware's round robin.
        quantizer: ``hardware`` uses the conversion instruction of gfx950, ``software`` integer arithmetic.
        a_operand: What is multiplied: packed ``e2m1`` codes of A, or its quantised values as ``bf16``, which GPUs
            without an FP4 matrix unit lower to better code (then ``quantizer`` is not read).
    """

    BLOCK_M: int = 16
    BLOCK_N: int = 64
    BLOCK_K: int = 256
    GROUP_M: int = 1
    num_warps: int = 4
    num_stages: int = 2
    waves_per_eu: int = 0
    matrix_instr_nonkdim: int = 16
    cache_modifier: Literal["", ".cg"] = ""
    num_xcds: int = 1
    quantizer: Literal["hardware", "software"] = "hardware"
    a_operand: Literal["e2m1", "bf16"] = "e2m1"

    RULES: ClassVar[tuple[Rule, ...]] = TILE_RULES

    def launch_options(self) -> dict[str, int]:
        """Options of the compiler and launcher, as opposed to constants of the kernel's source."""
        return {
            "num_warps": self.num_warps,
            "num_stages": self.num_stages,
            "waves_per_eu": self.waves_per_eu,
            "matrix_instr_nonkdim": self.matrix_instr_nonkdim,
        }


FusedConfig = TileConfig


@dataclass(frozen=True)
class SplitKAtomicConfig(TileConfig):
    """Knobs of ``fused_splitk_atomic``: ``split_k`` programs add their part of K to each tile."""

    split_k: int = 4

    RULES: ClassVar[tuple[Rule, ...]] = TILE_RULES + SPLIT_RULES


@dataclass(frozen=True)
class SplitKWorkspaceConfig(SplitKAtomicConfig):
    """Knobs of ``fused_splitk_workspace``: ``split_k`` slices, then a reduction with its own tile."""

    REDUCE_BLOCK_M: int = 16
    REDUCE_BLOCK_N: int = 64

    RULES: ClassVar[tuple[Rule, ...]] = (
        *SplitKAtomicConfig.RULES,
        multiple("REDUCE_BLOCK_M", 1),
        multiple("REDUCE_BLOCK_N", 16),
    )


@dataclass(frozen=True)
class StagedConfig(SplitKWorkspaceConfig):
    """Knobs of ``staged_triton``: a quantise kernel with its own tile, a GEMM, a reduction if ``split_k`` > 1."""

    split_k: int = 1
    QUANT_BLOCK_M: int = 32
    QUANT_BLOCK_K: int = 256

    RULES: ClassVar[tuple[Rule, ...]] = (
        *SplitKWorkspaceConfig.RULES,
        multiple("QUANT_BLOCK_M", 1),
        multiple("QUANT_BLOCK_K", 32),
        Rule(lambda c, s, d: c.BLOCK_M <= 256, "BLOCK_M={BLOCK_M} exceeds 256, the row padding of the shuffled scales"),
        Rule(lambda c, s, d: c.a_operand == "e2m1", "a_operand={a_operand}: a staged GEMM reads packed e2m1 codes"),
    )


def violations(
    config_type: type[KernelConfig], columns: Mapping[str, Any], shape: GemmShape, device: DeviceKey
) -> list[tuple[str, Any]]:
    """Each rule's reason with the boolean array of the points that break it.

    Args:
        config_type: Whose rules.
        columns: One array [points] a field of ``config_type``; a rule that reads none gives one value for all.
        shape: Problem.
        device: Where it would run.
    """
    c = SimpleNamespace(**columns)
    return [(rule.reason, np.logical_not(rule.holds(c, shape, device))) for rule in config_type.RULES]
