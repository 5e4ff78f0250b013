"""Mistakes that engineers make, as changes of the kernels' sources and of their launches.

A source mutation replaces text of ``kernels/triton`` or ``kernels/hip``; a copy of the folder is built, the installed
one stays as it is. A launch mutation changes a :class:`~kernels.launches.program.Program`. Each one makes some legal
input give a wrong result, or leaves it to chance.
"""

from __future__ import annotations

import importlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernels.families import FAMILIES
from kernels.launches.native import HipKernel
from kernels.launches.program import KernelCall, Program
from kernels.launches.triton_kernel import TritonKernel
from kernels.problem import GemmShape
from kernels.rocm.compiler import SOURCES, compile_hip
from search.gfx950.code.artifacts import ArtifactCache
from search.gfx950.code.assembly import analyze
from search.gfx950.code.calls import CompiledCall, compile_call
from search.gfx950.code.triton import CompiledKernel

TRITON = SOURCES.parent / "triton"
SHAPE = GemmShape(31, 128, 1088)  # tails of M and K
WHOLE = GemmShape(32, 128, 1024)  # no tails: what is wrong only at others has to be found there
ONE_ROW = GemmShape(1, 128, 1088)
Knobs = Mapping[str, int | str]
FIFTY = GemmShape(16, 3200, 256)  # tiles of 64 columns: 50
WIDE: Knobs = {"BLOCK_N": 256}  # wider than N
SOFTWARE: Knobs = {"quantizer": "software"}


@dataclass(frozen=True)
class SourceMutation:
    """One changed place of one file.

    Args:
        name: In words.
        file: Under ``kernels/triton`` or ``kernels/hip``.
        old: Text that occurs there (all occurrences are changed).
        new: What stands in its place.
        family: Whose program shows it.
        knobs: Of its configuration.
        shape: At which it is checked.
    """

    name: str
    file: str
    old: str
    new: str
    family: str = "fused"
    knobs: Knobs = field(default_factory=dict)
    shape: GemmShape = SHAPE


@dataclass(frozen=True)
class LaunchMutation:
    """One changed launch; ``change`` makes a wrong call of launch ``number`` of the right one."""

    name: str
    family: str
    number: int
    change: Callable[[KernelCall], KernelCall]
    knobs: Knobs = field(default_factory=dict)
    shape: GemmShape = SHAPE


def shorter(axis: int) -> Callable[[KernelCall], KernelCall]:
    """A grid that is one workgroup short."""

    def change(call: KernelCall) -> KernelCall:
        grid = list(call.grid)
        grid[axis] -= 1
        return replace(call, grid=(grid[0], grid[1], grid[2]))

    return change


def argument(name: str, difference: int) -> Callable[[KernelCall], KernelCall]:
    """A run-time integer that is wrong by ``difference``."""
    return lambda call: replace(call, args={**call.args, name: int(call.args[name]) + difference})


def constant(name: str, value: int | str | bool) -> Callable[[KernelCall], KernelCall]:
    """A compile-time argument of another value."""
    return lambda call: replace(call, constexprs={**call.constexprs, name: value})


SPLIT: Knobs = {"split_k": 2}
MASK = "mask = (offs_m < M)[:, None] & (offs_n < N)[None, :]"
ROUNDED = "acc.to(tl.bfloat16)"
CUT = "(acc.to(tl.int32, bitcast=True) >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)"
NAN = "tl.where(amax_bits > 0x7F800000, 255, byte)"
LOAD_A = "a = tl.load(a_ptr + row * stride_am + (k + offs_k)[None, :], mask=inside, other=0.0)"
CLEAR_A = "tl.store(a_ptr + row * stride_am + (k + offs_k)[None, :], tl.zeros_like(a), mask=inside)"
A_ROW = "row[:, None] * stride_am"
STORE = "tl.store(pointers, acc.to(tl.bfloat16), mask=mask)"
STORE_LEFT = f"tl.store(pointers - BLOCK_N, {ROUNDED}, mask=mask & (offs_n >= BLOCK_N)[None, :])"

SOURCE_MUTATIONS: Sequence[SourceMutation] = (
    # Quantiser rules, at every M.
    *(
        SourceMutation(f"{name}, M = {shape.M}", "quantize.py", old, new, family, knobs, shape)
        for shape in (SHAPE, ONE_ROW)
        for family, knobs in (("fused", {}), ("staged_triton", {}))
        for name, old, new in (
            ("exponent clamped too early", "tl.maximum(exponent, 2) - 2", "tl.maximum(exponent, 10) - 2"),
            ("tiny blocks flushed", NAN, f"tl.where(amax_bits < 0x06000000, 127, {NAN})"),
            ("denormal blocks flushed", NAN, f"tl.where(amax_bits < 0x00800000, 127, {NAN})"),
            ("NaN lost", NAN, "byte"),
            ("carry beyond 1.75 only", "amax_bits + 0x200000", "amax_bits + 0x1FFFFF"),
            ("carry from 1.5 on", "amax_bits + 0x200000", "amax_bits + 0x400000"),
            ("never a carry", "amax_bits + 0x200000", "amax_bits"),
            ("Inf takes the scale below", "exponent == 255, 254", "exponent == 255, 253"),
        )
    ),
    SourceMutation("half of a block is looked at", "quantize.py", "tl.max(magnitudes, axis=2)",
                   "tl.max(tl.where((tl.arange(0, 32) < 16)[None, None, :], magnitudes, 0), axis=2)"),
    SourceMutation("ties away from zero", "quantize.py", "0x1FFFFF + ((bits >> 22) & 1)", "0x200000", knobs=SOFTWARE),
    SourceMutation("small ties away", "quantize.py", "small = (clipped + 4194304.0)",
                   "small = (clipped + 0.00000006 + 4194304.0)", knobs=SOFTWARE),
    SourceMutation("no saturation", "quantize.py", "tl.minimum(magnitude, 6.0)", "tl.minimum(magnitude, 8.0)",
                   knobs=SOFTWARE),
    SourceMutation("nibbles swapped", "quantize.py", "low | (high << 4)", "high | (low << 4)", knobs=SOFTWARE),
    SourceMutation("inverse of the largest scale", "quantize.py",
                   "tl.where(byte == 254, 0x00400000, (254 - byte) << 23)", "((254 - byte) << 23)", knobs=SOFTWARE),
    SourceMutation("a row too many is quantised", "quantize.py", "inside = (offs_m < M)[:, None]",
                   "inside = (offs_m <= M)[:, None]", "staged_triton"),
    SourceMutation("codes beyond K", "quantize.py", "(offs_kb < K // 2)", "(offs_kb < K)", "staged_triton"),
    SourceMutation("columns 4 apart swapped", "quantize.py", "((group // 4) % 2) * 2", "((group // 4 + 1) % 2) * 2",
                   "staged_triton", {"BLOCK_M": 32}),  # whose GEMM reads scales another way
    SourceMutation("stride of A ignored", "quantize.py", A_ROW, "row[:, None] * K", "staged_triton"),
    SourceMutation("stride of A ignored", "products.py", "row * stride_am", "row * K"),
    SourceMutation("stride of A rounded down", "products.py", "row * stride_am", "row * (stride_am // 32 * 32)"),
    SourceMutation("a quarter of a row is not quantised", "quantize.py", "mask=inside & (group < K // 32)[None, :]",
                   "mask=inside & (group < K // 32 - 8)[None, :]", "staged_triton"),
    # Masks and tails.
    *(
        SourceMutation(f"columns not masked, {family}", "tiles.py", MASK,
                       "mask = (offs_m < M)[:, None] & (offs_n < N + BLOCK_N)[None, :]", family, {**WIDE, **split})
        for family, split in (("fused", {}), ("fused_splitk_atomic", SPLIT), ("fused_splitk_workspace", SPLIT))
    ),
    SourceMutation("flat mask", "tiles.py", MASK,
                   "mask = (offs_m < M)[:, None] & (offs_m[:, None] * N + offs_n[None, :] < M * N)", knobs=WIDE),
    SourceMutation("rows not masked", "tiles.py", MASK,
                   "mask = (offs_m < M + BLOCK_M)[:, None] & (offs_n < N)[None, :]"),
    SourceMutation("rows rounded up", "tiles.py", MASK,
                   "mask = (offs_m < (M + 15) // 16 * 16)[:, None] & (offs_n < N)[None, :]", shape=WHOLE),
    SourceMutation("M - 1 rows", "tiles.py", MASK, "mask = (offs_m < M - 1)[:, None] & (offs_n < N)[None, :]"),
    SourceMutation("K tail of A not masked", "products.py", "if K % BLOCK_K != 0:", "if False:"),
    SourceMutation("K tail of scales not masked", "tiles.py",
                   "if K % BLOCK_K == 0:\n            tile = tl.load(pointers,",
                   "if True:\n            tile = tl.load(pointers,"),
    SourceMutation("K tail of B not masked", "tiles.py", "if N % BLOCK_N == 0 and K % BLOCK_K == 0:", "if True:"),
    SourceMutation("a split loses its last step", "tiles.py", "(split + 1) * STEPS // SPLIT_K",
                   "(split + 1) * STEPS // SPLIT_K - 1", "fused_splitk_workspace", SPLIT),
    SourceMutation("a split begins a step early", "tiles.py", "return split * STEPS // SPLIT_K",
                   "return tl.maximum(split * STEPS // SPLIT_K - 1, 0)", "fused_splitk_workspace", SPLIT),
    # Layouts and strides.
    SourceMutation("scale rows permuted", "tiles.py", "(0, 5, 3, 1, 4, 2, 6)", "(0, 3, 5, 1, 4, 2, 6)",
                   knobs={"BLOCK_N": 64}),
    SourceMutation("weight halves swapped", "tiles.py", "(1, 2, 4, 0, 3)", "(1, 4, 2, 0, 3)"),
    SourceMutation("the next group's scales", "tiles.py", "offs_c = k + column", "offs_c = k + (column ^ 1)"),
    SourceMutation("slices overlap", "tiles.py", "* M + row", "* (M - 1) + row", "fused_splitk_workspace", SPLIT),
    SourceMutation("columns of a group permuted", "tiles.py", "pid_n = pid % num_n", "pid_n = num_n - 1 - pid % num_n"),
    # Rounding and sums.
    SourceMutation("store truncates", "tiles.py", ROUNDED, CUT),
    SourceMutation("denormal sums flushed", "tiles.py", ROUNDED,
                   "tl.where(tl.abs(acc) < 1.1754944e-38, 0.0, acc).to(tl.bfloat16)"),
    SourceMutation("sums clamped", "tiles.py", ROUNDED,
                   "tl.where(acc > 3.3e38, 3.3e38, tl.where(acc < -3.3e38, -3.3e38, acc)).to(tl.bfloat16)"),
    SourceMutation("sum of slices truncates", "gemm.py", ROUNDED, CUT, "fused_splitk_workspace", SPLIT),
    SourceMutation("rounded twice", "tiles.py", ROUNDED, "acc.to(tl.float16).to(tl.bfloat16)"),
    SourceMutation("sums begin at a little", "products.py", "tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)",
                   "tl.full((BLOCK_M, BLOCK_N), 0.125, dtype=tl.float32)"),
    SourceMutation("a slice is left out", "gemm.py", "tl.static_range(SPLIT_K)", "tl.static_range(SPLIT_K - 1)",
                   "fused_splitk_workspace", SPLIT),
    SourceMutation("a slice too many", "gemm.py", "tl.static_range(SPLIT_K)", "tl.static_range(SPLIT_K + 1)",
                   "fused_splitk_workspace", SPLIT),
    SourceMutation("the last element is not cleared", "gemm.py", "mask=offsets < elements",
                   "mask=offsets < elements - 1", "fused_splitk_atomic", SPLIT),
    # Operands are overwritten, which only the next reader of them notices.
    SourceMutation("A is used as scratch memory", "products.py", LOAD_A, f"{LOAD_A}\n            {CLEAR_A}",
                   "fused_splitk_atomic", {"BLOCK_N": 128, **SPLIT}),
    # What only some steps or tiles do.
    SourceMutation("NaN lost in every second step", "products.py", LOAD_A,
                   f"{LOAD_A}\n            a = tl.where((k // BLOCK_K % 2 == 1) & (a != a), 0.0, a)"),
    SourceMutation("Inf lost in the second step", "products.py", LOAD_A,
                   f"{LOAD_A}\n            a = tl.where((k == BLOCK_K) & (tl.abs(a) > 3.39e38), 0.0, a)"),
    SourceMutation("the last 16 columns of K are left out", "products.py", LOAD_A,
                   f"{LOAD_A}\n            a = tl.where((offs_k >= K - k - 16)[None, :], 0.0, a)"),
    SourceMutation("scales of A of an earlier tile from the third on", "products.py",
                   "load_scale_tile(a_scale_ptr, pid_m,", "load_scale_tile(a_scale_ptr, pid_m % 2,",
                   "staged_triton", {"BLOCK_M": 32}, replace(SHAPE, M=160)),
    *(
        SourceMutation(f"one tile of 50 is wrong, {place}", "tiles.py", STORE,
                       f"tl.store(pointers, tl.where(pid_n == {place}, 2 * acc, acc).to(tl.bfloat16), mask=mask)",
                       shape=FIFTY)
        for place in (17, 38)
    ),
    *(
        SourceMutation(f"{what} lost in step {step} of a single row", "products.py", LOAD_A,
                       f"{LOAD_A}\n            a = tl.where((k == {step} * BLOCK_K) & (M == 1) & ({of}), 0.0, a)",
                       shape=replace(ONE_ROW, K=4096))
        for step in (5, 14)
        for what, of in (("NaN", "a != a"), ("Inf", "tl.abs(a) > 3.39e38"))
    ),
    *(
        SourceMutation("carry beyond 1.75 only, M = 1, K = 64", "quantize.py", "amax_bits + 0x200000",
                       "amax_bits + 0x1FFFFF", family, shape=replace(ONE_ROW, K=64))
        for family in ("fused", "staged_triton")
    ),
    SourceMutation("odd M loses its last row", "tiles.py", MASK,
                   "mask = (offs_m < M // 2 * 2)[:, None] & (offs_n < N)[None, :]", shape=WHOLE),
    # Two writers.
    SourceMutation("two splits share a slice", "tiles.py", "* M + row", "// 2 * M + row", "fused_splitk_workspace",
                   {"split_k": 4}),
    SourceMutation("a tile is written twice, right last", "tiles.py", STORE,
                   f"{STORE_LEFT}\n        {STORE}"),
    SourceMutation("a tile is written twice, right first", "tiles.py", STORE,
                   f"{STORE}\n        {STORE_LEFT}"),
    SourceMutation("the first tile is everybody's", "tiles.py", STORE,
                   f"tl.store(pointers - pid_n * BLOCK_N, {ROUNDED}, mask=mask)\n        {STORE}"),
    # Work that is handed to another workgroup.
    *(
        SourceMutation(name, file, old, new, "fused_splitk_ticket", SPLIT)
        for name, file, old, new in (
            ("slices overlap", "tiles.py", "* M + row", "* (M - 1) + row"),
            ("the last but one sums", "ticket.py", "== SPLIT_K - 1", "== SPLIT_K - 2"),
            ("stores not waited for", "ticket.py", "tickets_ptr + wait_for_stores(tile)", "tickets_ptr + tile"),
            ("ticket acquires only", "ticket.py", 'sem="acq_rel"', 'sem="acquire"'),
            ("ticket releases only", "ticket.py", 'sem="acq_rel"', 'sem="release"'),
            ("ticket of a workgroup", "ticket.py", 'sem="acq_rel", scope="gpu"', 'sem="acq_rel", scope="cta"'),
            ("tickets not cleared", "ticket.py", "tile, 0, sem", "tile, 1, sem"),
            ("tickets of one tile", "ticket.py", "draw_ticket(tickets_ptr, tile) ==", "draw_ticket(tickets_ptr, 0) =="),
            ("everybody sums", "ticket.py", "== SPLIT_K - 1", "< SPLIT_K"),
            ("a slice is left out", "ticket.py", "tl.static_range(SPLIT_K)", "tl.static_range(1, SPLIT_K)"),
        )
    ),
    # Kernels written by hand in HIP.
    *(
        SourceMutation(name, file, old, new, "staged_hip", knobs, shape)
        for name, file, old, new, knobs, shape in (
            ("no wait at the end", "gemm_loop.h", "wait_for_loads<0>();  // after the end", "// after the end", {},
             WHOLE),
            ("no wait before the first read", "gemm_loop.h", "    meet<0>();\n    unrolled", "    unrolled", {}, SHAPE),
            ("waits for fewer loads", "gemm_device.h", "wait_for_loads<YOUNGER>();", "wait_for_loads<YOUNGER + 4>();",
             {}, SHAPE),
            ("no barrier", "gemm_device.h", "__builtin_amdgcn_s_barrier();", "", {}, SHAPE),
            ("odd values not looked at", "quantize.hip", "larger(pairs & 0xFFFF, pairs >> 16)", "(pairs & 0xFFFF)", {},
             SHAPE),
            ("half of the lanes not looked at", "quantize.hip", "max_of_lanes<BLOCK / VECTOR>",
             "max_of_lanes<BLOCK / VECTOR / 2>", {}, SHAPE),
            ("rows beyond M are stored", "quantize.hip", "m >= of.M || g >= groups", "g >= groups", {}, SHAPE),
            ("stride of A ignored", "quantize.hip", "(u64)row * of.stride_am", "(u64)row * of.K", {}, SHAPE),
            ("carry beyond 1.75 only", "mxfp4.h", "(amax + 0x20) >> 7", "(amax + 0x1F) >> 7", {}, SHAPE),
            ("carry beyond 1.75 only, M = 1", "mxfp4.h", "(amax + 0x20) >> 7", "(amax + 0x1F) >> 7", {}, ONE_ROW),
            ("NaN lost", "mxfp4.h", "amax > INF ? 255 : byte", "byte", {}, ONE_ROW),
            ("exponent clamped too early", "mxfp4.h", "larger(exponent, 2u) - 2", "larger(exponent, 9u) - 2", {},
             ONE_ROW),
            ("a split loses the rest", "gemm.hip", "(steps + split_k - 1) / split_k", "steps / split_k", SPLIT, SHAPE),
            ("rows of C not masked", "gemm_store.h", "left(M, m, T::WAVE_M)", "T::WAVE_M", {}, SHAPE),
            ("columns of C not masked", "gemm_store.h", "column < columns ?", "true ?", {"BLOCK_N": 256, "waves_n": 2},
             replace(SHAPE, N=192)),
            ("the tail's scales are not masked", "gemm_loop.h", "scales.words[group][word] &= mask;", "(void)mask;", {},
             SHAPE),
            ("the tail is forgotten", "gemm_loop.h", "if (k < end) multiply_tail", "if (false) multiply_tail", {},
             SHAPE),
            ("stores truncate", "gemm_store.h",
             "return __builtin_bit_cast(u32, __builtin_convertvector((floats2){low, high}, pair));",
             "return __builtin_bit_cast(u32, low) >> 16 | (__builtin_bit_cast(u32, high) & 0xFFFF0000u);", {}, SHAPE),
        )
    ),
)  # fmt: skip

LAUNCH_MUTATIONS: Sequence[LaunchMutation] = (
    *(
        LaunchMutation(f"a grid one short, {family} launch {number}", family, number, shorter(0), knobs)
        for family, numbers, knobs in (
            ("fused", (0,), {}), ("fused_splitk_atomic", (0, 1, 2), SPLIT), ("fused_splitk_workspace", (0, 1), SPLIT),
            ("staged_triton", (0, 1), {}), ("staged_hip", (0, 1), {}),
        )
        for number in numbers
    ),
    LaunchMutation("a split short", "fused_splitk_atomic", 1, shorter(1), SPLIT),
    LaunchMutation("M one more", "fused", 0, argument("M", 1)),
    LaunchMutation("M one less", "fused", 0, argument("M", -1)),
    LaunchMutation("M one less in the sum", "fused_splitk_workspace", 1, argument("M", -1), SPLIT),
    LaunchMutation("M one less in the quantiser", "staged_triton", 0, argument("M", -1)),
    LaunchMutation("stride of A", "fused", 0, argument("stride_am", 64)),
    LaunchMutation("stride of C", "fused", 0, argument("stride_om", 64)),
    LaunchMutation("K of the GEMM", "fused", 0, constant("K", 1280)),
    LaunchMutation("K of the quantiser", "staged_triton", 0, constant("K", 1024)),
    LaunchMutation("tile order of another group", "fused", 0, constant("GROUP_M", 2), {"BLOCK_M": 16}),
    LaunchMutation("splits of another kernel", "fused_splitk_workspace", 0, constant("SPLIT_K", 3), SPLIT),
    LaunchMutation("N of the sum", "fused_splitk_workspace", 1, constant("N", 64), SPLIT),
)  # fmt: skip


def mutated_launch(mutation: LaunchMutation) -> Program:
    """The family's program with the wrong launch."""
    program = FAMILIES[mutation.family].program(mutation.shape, FAMILIES[mutation.family].config(mutation.knobs))
    calls = list(program.calls)
    calls[mutation.number] = mutation.change(calls[mutation.number])
    return replace(program, calls=tuple(calls))


class MutatedSources:
    """Copies of both source folders with one mutation; compiles programs from them.

    Args:
        mutation: What is changed.
        number: Makes the name of the package of Triton kernels unique.
        cache: Of the unchanged launches' code, and of the changed Triton kernels, whose key is their source.

    Raises:
        ValueError: The old text is not in the file.
    """

    def __init__(self, mutation: SourceMutation, number: int, cache: ArtifactCache) -> None:
        self._hip = mutation.file.endswith((".hip", ".h"))
        self._folder = tempfile.TemporaryDirectory()
        self._cache = cache
        self._package = f"mutated_triton_{number}"
        root = Path(self._folder.name)
        target = shutil.copytree(SOURCES if self._hip else TRITON, root / self._package)
        path = target / mutation.file
        text = path.read_text()
        if mutation.old not in text:
            raise ValueError(f"{mutation.name}: {mutation.old!r} is not in {mutation.file}")
        path.write_text(text.replace(mutation.old, mutation.new))
        self._target = target
        if not self._hip:
            for file in target.glob("*.py"):
                file.write_text(file.read_text().replace("kernels.triton", self._package))
            sys.path.insert(0, str(root))

    def close(self) -> None:
        """Remove the copies."""
        if not self._hip:
            sys.path.remove(self._folder.name)
            for name in [name for name in sys.modules if name.partition(".")[0] == self._package]:
                del sys.modules[name]
        self._folder.cleanup()

    def compiled(self, program: Program) -> list[CompiledCall]:
        """Machine code of every launch, from the changed sources."""
        return [self._compiled(program, call) for call in program.calls]

    def _compiled(self, program: Program, call: KernelCall) -> CompiledCall:
        if self._hip and isinstance(call.kernel, HipKernel):
            built = compile_hip(call.kernel, folder=self._target)
            waves = call.kernel.threads // 64
            code = CompiledKernel(call.kernel.name, "gfx950", built.compiler, waves, 0, built.compile_s, built.assembly)
            return CompiledCall(call, code, analyze(built.assembly), False)
        if not self._hip and isinstance(call.kernel, TritonKernel):
            function = call.kernel.function
            module = importlib.import_module(function.__module__.replace("kernels.triton", self._package))
            call = replace(call, kernel=TritonKernel(getattr(module, function.__name__)))
        return compile_call(program, call, self._cache, Path(self._folder.name))
