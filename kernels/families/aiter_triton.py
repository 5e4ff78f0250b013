"""AITER's Triton GEMMs: knobs, rules, stages. The baseline that its users have, tuned and judged like the rest.

``aiter_triton_a4w4`` multiplies A that this project's kernel quantised: AITER's own gives NaN, Inf and, in 0.1.7, ties
another meaning, and leaves the shuffling of scales to the caller. ``aiter_triton_a16w4`` quantises in its loop, in that
other meaning, so that it is a baseline and no more; AITER 0.1.7 does not have it.
Source: ``gemm_afp4wfp4_preshuffle`` and ``gemm_a16wfp4_preshuffle`` of AITER, and their kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Literal

from kernels.config import (
    GFX950_ONLY,
    SPLIT_RULES,
    SPLITS,
    TILE,
    KernelConfig,
    Rule,
    at_least_one,
    knob,
    multiple,
    one_of,
)
from kernels.device import GFX950, DeviceKey
from kernels.errors import InputError, UnavailableError
from kernels.families.family import Family
from kernels.families.fused import TileConfig
from kernels.families.sources import TRITON_SOURCES
from kernels.families.stages import INT32_SPAN, Quantize, Stage, packed_buffers, round_up, slices_buffer
from kernels.launches.aiter_coverage import SplitFirstCoverage, TileGridCoverage
from kernels.launches.program import Buffer, KernelCall
from kernels.launches.triton_kernel import TritonKernel
from kernels.problem import BLOCK, GemmShape
from kernels.rocm.aiter_triton import FUSED, PACKED, REDUCE, Source, find_kernel, lacking_kernel
from kernels.triton.plain_scales import quantize_plain_kernel

Constants = Mapping[str, int | str | bool | None]
PLAIN_SCALES_BELOW: Final = 32  # rows of A; from there on AITER's GEMM takes shuffled scales
REDUCE_BLOCK: Final = (16, 64)  # tile of the reduction, fixed by AITER's launcher
ROW_GROUP: Final = 16  # rows of the shuffled weight that lie together
SCALE_ROWS: Final = 32  # rows of shuffled scales that lie together
XCDS: Final = 8  # that the packed GEMM counts on


def _tile_knob(name: str) -> Any:
    """The knob of this name as the other Triton families have it."""
    other = TileConfig.__dataclass_fields__[name]
    return field(default=other.default, metadata=other.metadata)


def _registers_suffice(c: Any, shape: GemmShape, device: DeviceKey) -> Any:
    lanes = c.num_warps * device.architecture.wave
    return lanes * device.architecture.lane_registers >= c.BLOCK_M * c.BLOCK_N


def _offsets_fit(c: Any, shape: GemmShape, device: DeviceKey) -> Any:
    widest = max(round_up(shape.M, 256) * shape.K, shape.N * shape.K // 2)
    return (widest < INT32_SPAN) & (c.split_k * round_up(shape.M, 256) * shape.N < INT32_SPAN)


RULES: Final = (
    GFX950_ONLY,
    multiple("BLOCK_M", 1),
    multiple("BLOCK_N", SCALE_ROWS),
    multiple("BLOCK_K", 256),  # eight scales of a row, which the shuffled order keeps together
    at_least_one("GROUP_M"),
    multiple("num_warps", 1),
    at_least_one("num_stages"),
    Rule(lambda c, s, d: (c.BLOCK_M <= 256) & (c.BLOCK_N <= 256), "a tile of more than 256 rows or columns"),
    Rule(lambda c, s, d: c.num_warps <= 16, "num_warps={num_warps} exceeds 16, the waves of a workgroup"),
    Rule(_registers_suffice, "BLOCK_M={BLOCK_M} x BLOCK_N={BLOCK_N} exceed the registers of {num_warps} waves"),
    one_of("matrix_instr_nonkdim", (16, 32, 0)),
    *SPLIT_RULES,
    Rule(lambda c, s, d: s.K % (c.BLOCK_K * c.split_k) == 0,
         "AITER's kernel needs K to be whole steps of BLOCK_K={BLOCK_K} in each of split_k={split_k} slices"),
    Rule(lambda c, s, d: s.N % c.BLOCK_N == 0,
         "AITER's kernel reads beyond the weight where BLOCK_N={BLOCK_N} leaves a tail"),
    Rule(_offsets_fit, "AITER's kernel counts offsets in 32 bits, which a tensor of this shape outgrows"),
)  # fmt: skip


@dataclass(frozen=True)
class AiterTritonConfig(KernelConfig):
    """Knobs of ``aiter_triton_a16w4``: what a file of AITER's configurations holds."""

    BLOCK_M: int = _tile_knob("BLOCK_M")
    BLOCK_N: int = _tile_knob("BLOCK_N")
    BLOCK_K: int = _tile_knob("BLOCK_K")
    GROUP_M: int = _tile_knob("GROUP_M")
    num_warps: int = _tile_knob("num_warps")
    num_stages: int = _tile_knob("num_stages")
    waves_per_eu: int = _tile_knob("waves_per_eu")
    matrix_instr_nonkdim: int = _tile_knob("matrix_instr_nonkdim")
    cache_modifier: Literal["", ".cg"] = _tile_knob("cache_modifier")
    split_k: int = knob(1, "Slices of K, each summed by programs of its own", SPLITS)

    RULES: ClassVar[tuple[Rule, ...]] = RULES

    def launch_options(self) -> dict[str, int]:
        """Options of the compiler and launcher."""
        names = ("num_warps", "num_stages", "waves_per_eu", "matrix_instr_nonkdim")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class AiterPackedConfig(AiterTritonConfig):
    """Knobs of ``aiter_triton_a4w4``: those of the GEMM, and the tile of the quantise kernel."""

    QUANT_BLOCK_M: int = knob(32, "Rows of a tile of the quantise kernel", TILE)
    QUANT_BLOCK_K: int = knob(256, "Columns of it", TILE)

    RULES: ClassVar[tuple[Rule, ...]] = (
        *RULES,
        multiple("QUANT_BLOCK_M", 1),
        multiple("QUANT_BLOCK_K", 32),
        Rule(lambda c, s, d: (c.BLOCK_M < PLAIN_SCALES_BELOW) == (s.M < PLAIN_SCALES_BELOW),
             "BLOCK_M={BLOCK_M}: AITER takes plain scales below 32 rows, of the tile and of A, else shuffled ones"),
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class AiterStage(Stage):
    """A launch of one of AITER's Triton kernels."""

    ARCH: ClassVar[str | None] = GFX950.arch
    SOURCE: ClassVar[Source]

    def lacking(self, *, offline: bool) -> str | None:
        """AITER, or this kernel of it."""
        return lacking_kernel(self.SOURCE)


@dataclass(frozen=True, eq=False)
class AiterQuantize(Quantize):
    """Quantise A to packed codes, with the scales that AITER's GEMM takes at this M: plain ones for few rows."""

    FUNCTIONS: ClassVar[tuple[Any, ...]] = (*Quantize.FUNCTIONS, quantize_plain_kernel)

    def call(self, shape: GemmShape, stride_am: int) -> KernelCall:
        """A tile a program."""
        shuffled = super().call(shape, stride_am)
        if shape.M >= PLAIN_SCALES_BELOW:
            return shuffled
        constants = {name: value for name, value in shuffled.constexprs.items() if name != "WIDE_OFFSETS"}
        return replace(shuffled, kernel=TritonKernel(quantize_plain_kernel), constexprs=constants)

    def workspaces(self, shape: GemmShape) -> tuple[Buffer, ...]:
        """The packed A."""
        codes, shuffled = packed_buffers(shape)
        plain = Buffer("a_scale", "u8", (shape.M, shape.K // BLOCK), "workspace")
        return codes, plain if shape.M < PLAIN_SCALES_BELOW else shuffled


def next_pow2(value: int) -> int:
    """The least power of two that is not below."""
    return 1 << (value - 1).bit_length()


@dataclass(frozen=True, eq=False)
class AiterGemm(AiterStage):
    """Multiply with one of AITER's kernels for the shuffled weight.

    Args:
        tile: Knobs of :class:`AiterTritonConfig`, or columns of them.
    """

    tile: Any

    quantizer: ClassVar[str | None] = None  # how A is quantised in the loop

    def call(self, shape: GemmShape, stride_am: int) -> KernelCall:
        """A tile and slice of K a program."""
        c, sliced = self.tile, self.tile.split_k > 1
        coverage = SplitFirstCoverage(
            shape.M, shape.N, c.BLOCK_M, c.BLOCK_N, c.GROUP_M, 1 if self.quantizer else XCDS, c.split_k
        )
        args = {
            "b_ptr": "b", "c_ptr": "slices" if sliced else "out", "b_scales_ptr": "b_scale",
            "M": shape.M, "N": shape.N, "K": shape.K // 2, "stride_bn": ROW_GROUP * shape.K // 2, "stride_bk": 1,
            "stride_ck": shape.M * shape.N if sliced else 0, "stride_cm": shape.N, "stride_cn": 1,
            "stride_bsn": _scale_stride(shape), "stride_bsk": 1, **self._operand(shape, stride_am),
        }  # fmt: skip
        constants: Constants = {
            "BLOCK_SIZE_M": c.BLOCK_M, "BLOCK_SIZE_N": c.BLOCK_N, "BLOCK_SIZE_K": c.BLOCK_K,
            "GROUP_SIZE_M": c.GROUP_M, "NUM_KSPLIT": c.split_k, "SPLITK_BLOCK_SIZE": shape.K // c.split_k,
            "EVEN_K": True, "GRID_MN": coverage.num_m * coverage.num_n, "PREQUANT": True,
            "cache_modifier": c.cache_modifier, **c.launch_options(),
        }  # fmt: skip
        return _call(self.SOURCE, coverage, coverage.grid_of(shape.M, shape.N), args, constants, c.launch_options())

    def _operand(self, shape: GemmShape, stride_am: int) -> dict[str, str | int]:
        """A as it is."""
        return {"a_ptr": "a", "stride_am": stride_am, "stride_ak": 1}

    def workspaces(self, shape: GemmShape) -> tuple[Buffer, ...]:
        """The slices, where K is split."""
        return (slices_buffer(shape, self.tile.split_k),) if self.tile.split_k > 1 else ()


@dataclass(frozen=True, eq=False)
class AiterFusedGemm(AiterGemm):
    """It quantises A in its loop."""

    SOURCE: ClassVar[Source] = FUSED
    quantizer: ClassVar[str | None] = "software"


@dataclass(frozen=True, eq=False)
class AiterPackedGemm(AiterGemm):
    """A was quantised before."""

    SOURCE: ClassVar[Source] = PACKED

    def _operand(self, shape: GemmShape, stride_am: int) -> dict[str, str | int]:
        """Codes, and scales that are plain for small tiles."""
        plain = self.tile.BLOCK_M < PLAIN_SCALES_BELOW
        scale_stride = shape.K // BLOCK if plain else _scale_stride(shape)
        return {
            "a_ptr": "a_codes", "stride_am": shape.K // 2, "stride_ak": 1,
            "a_scales_ptr": "a_scale", "stride_asm": scale_stride, "stride_ask": 1,
        }  # fmt: skip


def _scale_stride(shape: GemmShape) -> int:
    """Bytes from one group of rows of shuffled scales to the next."""
    return SCALE_ROWS * round_up(shape.K // BLOCK, 8)


@dataclass(frozen=True, eq=False)
class AiterSum(AiterStage):
    """Sum the slices of K with AITER's kernel."""

    slices: Any
    BLOCK_N: int = REDUCE_BLOCK[1]

    BLOCK_M: ClassVar[int] = REDUCE_BLOCK[0]

    SOURCE: ClassVar[Source] = REDUCE

    def call(self, shape: GemmShape, stride_am: int) -> KernelCall:
        """A tile a program; the last ones begin anew at the first row or column where C ends."""
        M, N = shape.M, shape.N
        coverage = TileGridCoverage(M, N, self.BLOCK_M, self.BLOCK_N)
        args: dict[str, str | int] = {
            "c_in_ptr": "slices", "c_out_ptr": "out", "M": M, "N": N, "stride_c_in_k": M * N, "stride_c_in_m": N,
            "stride_c_in_n": 1, "stride_c_out_m": N, "stride_c_out_n": 1,
        }  # fmt: skip
        constants: Constants = {
            "bias_ptr": None, "BLOCK_SIZE_M": coverage.BLOCK_M, "BLOCK_SIZE_N": coverage.BLOCK_N,
            "ACTUAL_KSPLIT": self.slices, "MAX_KSPLIT": next_pow2(self.slices), "ADD_BIAS": False, "activation": "",
            "use_activation": False, "KERNEL_NAME": "reduce",
        }  # fmt: skip
        return _call(REDUCE, coverage, coverage.grid_of(M, N), args, constants, {"num_warps": 4})


def _call(
    source: Source, coverage: Any, grid: tuple[int, int, int], args: Mapping[str, str | int], constants: Constants,
    options: Mapping[str, int],
) -> KernelCall:  # fmt: skip
    """The launch of what the AITER that is here has of ``source``; arguments of 1 are constants, as at a launch.

    Raises:
        UnavailableError: There is no AITER here, or it has no such kernel.
    """
    try:
        kernel = TritonKernel(find_kernel(source))
    except InputError as error:
        raise UnavailableError(str(error)) from error
    runtime = {name: args[name] for name in kernel.arg_names if name in args and args[name] != 1}
    known = {**constants, **dict.fromkeys(args.keys() - runtime.keys(), 1)}
    compiled_in = {name: known[name] for name in kernel.arg_names if name in known}
    return KernelCall(kernel, grid, runtime, compiled_in, coverage, options)


def aiter_triton_a4w4(c: Any) -> tuple[Stage, ...]:
    """Quantise, multiply, and sum where K is split."""
    return (
        AiterQuantize(c.QUANT_BLOCK_M, c.QUANT_BLOCK_K, "hardware"),
        AiterPackedGemm(c),
        AiterSum(c.split_k, when=c.split_k > 1),
    )


def aiter_triton_a16w4(c: Any) -> tuple[Stage, ...]:
    """Quantise and multiply in one kernel, and sum where K is split."""
    return AiterFusedGemm(c), AiterSum(c.split_k, when=c.split_k > 1)


SOURCES: Final = (*TRITON_SOURCES, "launches/aiter_coverage.py", "rocm/aiter_triton.py", "triton/plain_scales.py")
AITER_TRITON_A4W4 = Family(
    "aiter_triton_a4w4", AiterPackedConfig, aiter_triton_a4w4, True, "quantise kernel, then AITER's packed Triton GEMM",
    SOURCES,
)  # fmt: skip
AITER_TRITON_A16W4 = Family(
    "aiter_triton_a16w4", AiterTritonConfig, aiter_triton_a16w4, True, "AITER's Triton GEMM that quantises A", SOURCES,
    ordinary_only=True,
)  # fmt: skip
