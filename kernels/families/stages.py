"""Stages: what the program of every family is composed of. Quantise, clear, multiply, sum: each is one launch.

A family is a function from its knobs to stages. Of one configuration it gives the program; of columns of
configurations, one array for each knob, what an architecture's model in :mod:`search` estimates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from kernels.config import one_of
from kernels.device import GFX950
from kernels.launches.coverage import FlatCoverage, QuantizeCoverage, RowCoverage, TileCoverage
from kernels.launches.native import HipKernel
from kernels.launches.program import Buffer, KernelCall, Program, Role
from kernels.launches.triton_kernel import TritonKernel
from kernels.mxfp4.layouts import padded_scale_shape
from kernels.problem import BLOCK, GemmShape
from kernels.rocm.compiler import lacking_compiler
from kernels.triton.gemm import (
    decoded_gemm_kernel,
    fused_gemm_kernel,
    reduce_kernel,
    round_kernel,
    staged_gemm_kernel,
    zero_kernel,
)
from kernels.triton.quantize import quantize_kernel

ZERO_BLOCK: Final = 2048  # elements that one program clears
SMALL_KERNEL: Final = {"num_warps": 4}  # launch options of all that is no GEMM
INT32_SPAN: Final = 1 << 31


@dataclass(frozen=True, eq=False)
class Stage(ABC):
    """One launch of a family's program. Fields are numbers, or arrays with one value for each of many configurations.

    Args:
        when: Whether the configuration has this launch.
    """

    when: Any = field(default=True, kw_only=True)

    FUNCTIONS: ClassVar[tuple[Any, ...]] = ()  # of Triton, that it may launch
    ARCH: ClassVar[str | None] = None  # the only one that its code runs on

    @abstractmethod
    def call(self, shape: GemmShape, stride_am: int) -> KernelCall:
        """The launch at ``shape``, whose A has rows ``stride_am`` elements apart."""

    def workspaces(self, shape: GemmShape) -> tuple[Buffer, ...]:
        """Buffers of the program that this launch is the first to write."""
        return ()

    def bf16_slice_k(self, shape: GemmShape) -> int | None:
        """As the field of :class:`~kernels.launches.program.Program`."""
        return None

    def lacking(self, *, offline: bool) -> str | None:
        """What this machine lacks for it, after a semicolon the cure; None if there is nothing.

        Args:
            offline: Whether the simulator executes the code instead of a GPU.
        """
        return None


def compose(stages: Iterable[Stage], shape: GemmShape, stride_am: int) -> Program:
    """The program of one configuration's stages."""
    launched = [stage for stage in stages if stage.when]
    buffers = (*io_buffers(shape), *(buffer for stage in launched for buffer in stage.workspaces(shape)))
    slices = (stage.bf16_slice_k(shape) for stage in launched)
    calls = tuple(stage.call(shape, stride_am) for stage in launched)
    return Program(buffers, calls, next((slice_k for slice_k in slices if slice_k is not None), None))


def round_up(value: int, multiple: int) -> int:
    """The next multiple."""
    return -(-value // multiple) * multiple


def cdiv(value: int, divisor: int) -> int:
    """Quotient rounded up."""
    return -(-value // divisor)


def is_wide(*extents: int) -> bool:
    """Whether an index into a tensor of this many elements or bytes can exceed 32 bits."""
    return max(extents) >= INT32_SPAN


def io_buffers(shape: GemmShape) -> tuple[Buffer, ...]:
    """The caller's tensors."""
    return (
        Buffer("a", "bf16", (shape.M, shape.K), "input"),
        Buffer("b", "u8", (shape.N, shape.K // 2), "input"),
        _scale_buffer("b_scale", shape.N, shape.K, "input"),
        Buffer("out", "bf16", (shape.M, shape.N), "output"),
    )


def packed_buffers(shape: GemmShape) -> tuple[Buffer, Buffer]:
    """A once it is quantised: codes [M, K // 2] row-major, and shuffled scales."""
    codes = Buffer("a_codes", "u8", (shape.M, shape.K // 2), "workspace")
    return codes, _scale_buffer("a_scale", shape.M, shape.K, "workspace")


def _scale_buffer(name: str, rows: int, K: int, role: Role) -> Buffer:
    return Buffer(name, "u8", padded_scale_shape(rows, K // BLOCK), role)


@dataclass(frozen=True, eq=False)
class Quantize(Stage):
    """Quantise A to the packed buffers with Triton; pads of the scales stay as they are."""

    BLOCK_M: Any
    BLOCK_K: Any
    quantizer: Any

    FUNCTIONS: ClassVar[tuple[Any, ...]] = (quantize_kernel,)

    def call(self, shape: GemmShape, stride_am: int) -> KernelCall:
        """A tile a program."""
        tiles = cdiv(shape.M, self.BLOCK_M) * cdiv(shape.K, self.BLOCK_K)
        return KernelCall(
            TritonKernel(quantize_kernel),
            (tiles, 1, 1),
            {"a_ptr": "a", "codes_ptr": "a_codes", "scale_ptr": "a_scale", "M": shape.M, "stride_am": stride_am},
            {"K": shape.K, "BLOCK_M": self.BLOCK_M, "BLOCK_K": self.BLOCK_K,
             "QUANTIZER": self.quantizer, "WIDE_OFFSETS": is_wide(round_up(shape.M, 256) * stride_am)},
            RowCoverage(shape.K, self.BLOCK_M, self.BLOCK_K),
            SMALL_KERNEL,
        )  # fmt: skip

    def workspaces(self, shape: GemmShape) -> tuple[Buffer, ...]:
        """The packed A."""
        return packed_buffers(shape)


@dataclass(frozen=True, eq=False)
class Round(Stage):
    """Round A to its MXFP4 values, bf16 in the order of ``kernels.triton.decoded``.

    Args:
        BLOCK_K: Columns of a tile, a multiple of 128: the order of the product mixes so many.
        gemm: Knobs of the GEMM, whose tiles lie in memory as runs.
    """

    BLOCK_M: Any
    BLOCK_K: Any
    gemm: Any

    FUNCTIONS: ClassVar[tuple[Any, ...]] = (round_kernel,)

    def call(self, shape: GemmShape, stride_am: int) -> KernelCall:
        """A tile a program."""
        _, padded_k = self._extents(shape)
        return KernelCall(
            TritonKernel(round_kernel, waits=True),
            (cdiv(shape.M, self.BLOCK_M) * cdiv(padded_k, self.BLOCK_K), 1, 1),
            {"a_ptr": "a", "values_ptr": "a_values", "M": shape.M, "stride_am": stride_am},
            {"K": shape.K, "BLOCK_M": self.BLOCK_M, "BLOCK_K": self.BLOCK_K,
             "TILE_M": self.gemm.BLOCK_M, "TILE_K": self.gemm.BLOCK_K,
             "WIDE_OFFSETS": is_wide(round_up(shape.M, 256) * max(stride_am, padded_k))},
            RowCoverage(padded_k, self.BLOCK_M, self.BLOCK_K),
            SMALL_KERNEL,
        )  # fmt: skip

    def _extents(self, shape: GemmShape) -> tuple[int, int]:
        """M and K of whole tiles of the GEMM."""
        return round_up(shape.M, self.gemm.BLOCK_M), round_up(shape.K, self.gemm.BLOCK_K)

    def workspaces(self, shape: GemmShape) -> tuple[Buffer, ...]:
        """The values."""
        rows, padded_k = self._extents(shape)
        return (Buffer("a_values", "bf16", (padded_k // self.gemm.BLOCK_K, rows, self.gemm.BLOCK_K), "workspace"),)


@dataclass(frozen=True, eq=False)
class HipStage(Stage):
    """One whose kernel a HIP compiler makes."""

    ARCH: ClassVar[str | None] = GFX950.arch

    def lacking(self, *, offline: bool) -> str | None:
        """A compiler; a linker too where a GPU is to run its code."""
        return lacking_compiler(linked=not offline)


@dataclass(frozen=True, eq=False)
class HipQuantize(HipStage):
    """Quantise A to the packed buffers with ``hip/quantize.hip``; fields as of :func:`hip_quantize_kernel`."""

    threads: Any
    groups: Any
    vector: Any

    def call(self, shape: GemmShape, stride_am: int) -> KernelCall:
        """As :func:`hip_quantize_call`."""
        kernel = hip_quantize_kernel(self.threads, self.groups, self.vector)
        return hip_quantize_call(shape.M, shape.K, kernel, codes="a_codes", stride_am=stride_am)

    def workspaces(self, shape: GemmShape) -> tuple[Buffer, ...]:
        """The packed A."""
        return packed_buffers(shape)


@dataclass(frozen=True, eq=False)
class Clear(Stage):
    """Set a buffer [M, N] to zero: ``sums`` of fp32, a workspace, or the output."""

    buffer: str

    FUNCTIONS: ClassVar[tuple[Any, ...]] = (zero_kernel,)

    def call(self, shape: GemmShape, stride_am: int) -> KernelCall:
        """A run of elements a program."""
        elements = shape.M * shape.N
        return KernelCall(
            TritonKernel(zero_kernel, waits=True),
            (cdiv(elements, ZERO_BLOCK), 1, 1),
            {"x_ptr": self.buffer, "elements": elements},
            {"BLOCK": ZERO_BLOCK, "WIDE_OFFSETS": is_wide(elements)},
            FlatCoverage(shape.N, ZERO_BLOCK),
            SMALL_KERNEL,
        )

    def workspaces(self, shape: GemmShape) -> tuple[Buffer, ...]:
        """The sums, where it clears them."""
        return (Buffer("sums", "fp32", (1, shape.M, shape.N), "workspace"),) if self.buffer == "sums" else ()


@dataclass(frozen=True, eq=False)
class Gemm(Stage):
    """Multiply with Triton: A quantised by the GEMM itself, or by a stage before.

    Args:
        tile: Knobs of :class:`kernels.families.fused.TileConfig`, or columns of them.
        staged: Whether A was quantised before, to packed codes.
        rounded: Whether it was rounded instead, to bf16.
        split_k: Programs that share a tile of C, each with its part of K.
        sliced: Whether each of them stores an fp32 slice.
        atomic: Whether they add to ``sums`` instead.
    """

    tile: Any
    staged: bool = False
    rounded: Any = False
    split_k: Any = 1
    sliced: Any = False
    atomic: bool = False

    FUNCTIONS: ClassVar[tuple[Any, ...]] = (fused_gemm_kernel, staged_gemm_kernel, decoded_gemm_kernel)

    def call(self, shape: GemmShape, stride_am: int) -> KernelCall:
        """A tile and slice of K a program."""
        tile, split_k = self.tile, self.split_k
        function, a = self._operand
        store, out = self._target
        row = {} if self.staged else {"stride_am": stride_am}
        quantise = {} if self.staged else {"QUANTIZER": tile.quantizer, "A_OPERAND": tile.a_operand}
        return KernelCall(
            TritonKernel(function, waits=True),
            (cdiv(shape.M, tile.BLOCK_M) * cdiv(shape.N, tile.BLOCK_N), split_k, 1),
            {**a, "b_ptr": "b", "b_scale_ptr": "b_scale", "out_ptr": out, "M": shape.M, **row, "stride_om": shape.N},
            {"N": shape.N, "K": shape.K,
             "BLOCK_M": tile.BLOCK_M, "BLOCK_N": tile.BLOCK_N, "BLOCK_K": tile.BLOCK_K,
             "GROUP_M": tile.GROUP_M, "NUM_XCDS": tile.num_xcds, "SPLIT_K": split_k,
             "CACHE": tile.cache_modifier, "STORE": store, **quantise,
             "WIDE_OFFSETS": self._is_wide(shape, self._row_of_a(shape, stride_am))},
            TileCoverage(shape.M, shape.N, tile.BLOCK_M, tile.BLOCK_N, tile.GROUP_M, tile.num_xcds, split_k),
            tile.launch_options(),
        )  # fmt: skip

    @property
    def _operand(self) -> tuple[Any, dict[str, str]]:
        """The kernel, and the buffers of A that it takes."""
        if not self.staged:
            return fused_gemm_kernel, {"a_ptr": "a"}
        if self.rounded:
            return decoded_gemm_kernel, {"values_ptr": "a_values"}
        return staged_gemm_kernel, {"codes_ptr": "a_codes", "a_scale_ptr": "a_scale"}

    @property
    def _target(self) -> tuple[str, str]:
        """How the kernel stores, and the buffer."""
        if self.atomic:
            return "atomic", "sums"
        return ("workspace", "slices") if self.sliced else ("out", "out")

    def _row_of_a(self, shape: GemmShape, stride_am: int) -> int:
        """Elements of a row of what it reads as A."""
        if self.staged and self.rounded:
            return round_up(shape.K, self.tile.BLOCK_K)
        return shape.K if self.staged else stride_am

    def _is_wide(self, shape: GemmShape, stride_am: int) -> bool:
        rows = round_up(shape.M, 256)
        return is_wide(rows * stride_am, shape.N * shape.K // 2, self.split_k * rows * shape.N)

    def workspaces(self, shape: GemmShape) -> tuple[Buffer, ...]:
        """The slices, where it stores them."""
        return (slices_buffer(shape, self.split_k),) if self.sliced else ()


@dataclass(frozen=True, eq=False)
class Sum(Stage):
    """Sum fp32 slices [slices, M, N] and round to bf16, a tile [BLOCK_M, BLOCK_N] a program."""

    BLOCK_M: Any
    BLOCK_N: Any
    slices: Any
    buffer: str = "slices"

    FUNCTIONS: ClassVar[tuple[Any, ...]] = (reduce_kernel,)

    def call(self, shape: GemmShape, stride_am: int) -> KernelCall:
        """A tile a program."""
        return KernelCall(
            TritonKernel(reduce_kernel, waits=True),
            (cdiv(shape.M, self.BLOCK_M) * cdiv(shape.N, self.BLOCK_N), 1, 1),
            {"slices_ptr": self.buffer, "out_ptr": "out", "M": shape.M, "stride_om": shape.N},
            {"N": shape.N, "SPLIT_K": self.slices, "BLOCK_M": self.BLOCK_M, "BLOCK_N": self.BLOCK_N,
             "WIDE_OFFSETS": is_wide(self.slices * round_up(shape.M, 256) * shape.N)},
            TileCoverage(shape.M, shape.N, self.BLOCK_M, self.BLOCK_N),
            SMALL_KERNEL,
        )  # fmt: skip


def slices_buffer(shape: GemmShape, split_k: int) -> Buffer:
    """Partial sums of the slices of K."""
    return Buffer("slices", "fp32", (split_k, shape.M, shape.N), "workspace")


SOURCE: Final = "quantize.hip"
SYMBOL: Final = "mxfp4_quantize"
THREADS: Final = (64, 128, 256, 512, 1024)  # of a workgroup
GROUPS: Final = (1, 2, 4)  # blocks that a team of lanes quantises
VECTORS: Final = (4, 8, 16, 32)  # values of a block that one lane holds


def hip_quantize_kernel(threads: int, groups: int, vector: int) -> HipKernel:
    """The kernel for one set of its parameters.

    Raises:
        ValueError: A parameter has no such value.
    """
    for name, value, legal in (("threads", threads, THREADS), ("groups", groups, GROUPS), ("vector", vector, VECTORS)):
        if value not in legal:
            raise ValueError(f"{name}={value} is none of {', '.join(map(str, legal))}")
    return HipKernel(
        name=SYMBOL,
        arg_names=("a_ptr", "codes_ptr", "scale_ptr", "M", "K", "stride_am"),
        threads=threads,
        source=SOURCE,
        defines={"QUANT_THREADS": threads, "QUANT_GROUPS": groups, "QUANT_VECTOR": vector},
        arg_types=("ptr", "ptr", "ptr", "i32", "i32", "i32"),
    )


def hip_quantize_call(
    M: int, K: int, kernel: HipKernel, *,
    a: str = "a", codes: str = "codes", scale: str = "a_scale", stride_am: int | None = None,
) -> KernelCall:  # fmt: skip
    """The launch of ``kernel`` on A [M, K].

    Args:
        M: Rows, at least 1.
        K: Columns, a positive multiple of 64.
        a: Buffer of A, its values at multiples of 2 bytes.
        codes: Buffer [M, K//2].
        scale: Buffer of :func:`kernels.mxfp4.layouts.padded_scale_shape` (M, K//32).
        stride_am: Elements from one row of A to the next; default K.

    Raises:
        ValueError: M or K is not legal.
    """
    if M < 1 or K < 1 or K % (2 * BLOCK):
        raise ValueError(f"cannot quantise [{M}, {K}]: M must be at least 1, K a positive multiple of {2 * BLOCK}")
    defines = kernel.defines
    coverage = QuantizeCoverage(M, K, kernel.threads, defines["QUANT_GROUPS"], defines["QUANT_VECTOR"])
    pointers: dict[str, str | int] = {"a_ptr": a, "codes_ptr": codes, "scale_ptr": scale}
    extents = {"M": M, "K": K, "stride_am": K if stride_am is None else stride_am}
    return KernelCall(kernel, coverage.grid, {**pointers, **extents}, {}, coverage)


HIP_QUANTIZE_RULES = (
    one_of("QUANT_THREADS", THREADS),
    one_of("QUANT_GROUPS", GROUPS),
    one_of("QUANT_VECTOR", VECTORS),
)
