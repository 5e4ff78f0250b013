"""What is measured: for each constant a kernel that repeats one thing, and what it must compute.

A probe is timed at two counts of repetitions; the difference is what the rest of them took, whatever a launch costs.
Where the first count is 0, nothing is subtracted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from kernels.device import DeviceKey
from kernels.launches.coverage import WholeCoverage
from kernels.launches.program import Buffer, KernelCall, Program
from kernels.launches.triton_kernel import TritonKernel
from kernels.triton.calibration import (
    UNROLLED,
    chase_kernel,
    exchange_kernel,
    mark_kernel,
    matrix_kernel,
    read_kernel,
    vector_kernel,
    write_kernel,
)

WARPS = 4  # one wave a SIMD
LANES = 256  # of four waves of 64
LINK = 64  # lanes of a link: 256 B, two cache lines
STREAM_WARPS = 16  # so many that some wait for memory while others ask it
PIECE = 16384  # fp32 values that a workgroup reads or writes at a time: 64 KiB
PIECE_BYTES = 4 * PIECE
UNIT_BYTES = 1 << 20  # that one workgroup reads: more than an L1, less than the L2 of a die
TILE = 128  # rows, columns and depth of the product
GRAPH_LAUNCHES = 16  # of a sample, as the protocol of a sweep has them
ONES, UNIT_SCALE = 0x22, 127  # two E2M1 codes of 1.0, and the E8M0 byte of 1
Device: TypeAlias = torch.device | str
Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Probe:
    """One measurement.

    Args:
        name: Of what is measured; its key in the file.
        counts: Repetitions of the two launches that are compared.
        program: Of one launch, from its repetitions.
        fill: Contents of an input [elements] by the buffer's name; of others, ones.
        expected: What every element of ``out`` must be after one launch.
        unit: Of ``shown``.
        shown: From microseconds a repetition to what a reader knows.
        warm: Whether what it reads is in the last-level cache.
    """

    name: str
    counts: tuple[int, int]
    program: Callable[[int], Program]
    expected: Callable[[int], torch.Tensor]
    unit: str
    shown: Callable[[float], float]
    fill: Callable[[Buffer, Device], torch.Tensor]
    warm: bool = False

    def tensors(self, count: int, device: Device = "cpu") -> Tensors:
        """Inputs, and an ``out`` that holds the place where a chase starts, or zeros."""
        return {buffer.name: self.fill(buffer, device) for buffer in self.program(count).buffers}


def probes_of(device: DeviceKey, cache_bytes: int, *, share: float = 1.0) -> tuple[Probe, ...]:
    """Every probe that ``device`` can run, in the order in which constants depend on each other.

    Args:
        share: Of the repetitions and of the bytes that are touched; 1 but for rehearsals and the simulator.
    """
    units = device.cu_count
    far, near = int(4 * cache_bytes * share), int(0.9 * cache_bytes * share)
    probes = [
        _mark("launch", (0, GRAPH_LAUNCHES)),
        _mark("gap", (GRAPH_LAUNCHES, 2 * GRAPH_LAUNCHES)),
        _vector(units, _even(16384 * share)),
        *([_matrix(units, _even(2048 * share))] if device.has_scaled_fp4 else []),
        _exchange(_even(2048 * share)),
        _chase("load_cached", near // 4, _even(2048 * share), warm=True),
        _chase("load_memory", far, _even(2048 * share), warm=False),
        _read("read_unit", 1, UNIT_BYTES, warm=True),
        _read("read_cache", units, near, warm=True),
        *(_read(f"read_memory_{part}", part, far, warm=False) for part in parts(units)),
        _write(units, far),
    ]
    return tuple(probes)


def parts(units: int) -> tuple[int, ...]:
    """Numbers of workgroups at which memory is read: an eighth of the compute units to all of them."""
    return tuple(sorted({max(1, units * eighths // 8) for eighths in (1, 2, 4, 6, 8)}))


def _even(count: float, unrolled: int = 16) -> int:
    """Repetitions that are whole trips of a loop that the compiler unrolls so far."""
    return max(unrolled, int(count) // unrolled * unrolled)


def _pieces(footprint: int, workgroups: int) -> int:
    """Half of the pieces of ``footprint`` bytes."""
    return _even(footprint / 2 / (workgroups * PIECE_BYTES), 2)


def _call(function: Any, grid: int, args: Mapping[str, str | int], constexprs: Mapping[str, int], warps: int) -> Any:
    whole = WholeCoverage(1, 1)
    return KernelCall(TritonKernel(function), (grid, 1, 1), args, dict(constexprs), whole, {"num_warps": warps})


def _fp32(name: str, elements: int) -> Buffer:
    return Buffer(name, "fp32", (elements,), "output" if name == "out" else "input")


def _plain(buffer: Buffer, device: Device) -> torch.Tensor:
    if buffer.name == "out":
        return torch.zeros(buffer.shape, dtype=torch.float32, device=device)
    if buffer.dtype == "u8":
        value = UNIT_SCALE if buffer.name == "scale" else ONES
        return torch.full(buffer.shape, value, dtype=torch.uint8, device=device)
    return torch.ones(buffer.shape, dtype=torch.float32, device=device)


def _filled(elements: int, value: float) -> torch.Tensor:
    return torch.full((elements,), value, dtype=torch.float32)


def _ns(us: float) -> float:
    return 1e3 * us


def _mark(name: str, counts: tuple[int, int]) -> Probe:
    def program(count: int) -> Program:
        call = _call(mark_kernel, 1, {"out_ptr": "out"}, {"LANES": LINK}, 1)
        return Program((_fp32("out", LINK),), (call,) * count)

    return Probe(name, counts, program, lambda count: _filled(LINK, 1.0), "us a kernel", float, _plain)


def _vector(units: int, count: int) -> Probe:
    def program(trips: int) -> Program:
        args: dict[str, str | int] = {"ones_ptr": "ones", "out_ptr": "out", "trips": trips}
        call = _call(vector_kernel, units, args, {"LANES": LANES}, WARPS)
        return Program((_fp32("ones", LANES), _fp32("out", LANES * units)), (call,))

    steps = int(UNROLLED.value)
    return Probe(
        "vector", (count, 2 * count), program, lambda trips: _filled(LANES * units, float(steps * trips)),
        "ns a dependent multiply-add", lambda us: _ns(us) / steps, _plain,
    )  # fmt: skip


def _matrix(units: int, count: int) -> Probe:
    def program(trips: int) -> Program:
        args: dict[str, str | int] = {"a_ptr": "a", "b_ptr": "b", "scale_ptr": "scale", "out_ptr": "out"}
        tile = {"BLOCK_M": TILE, "BLOCK_N": TILE, "BLOCK_K": TILE}
        call = _call(matrix_kernel, units, args | {"trips": trips}, tile, WARPS)
        codes = [Buffer(name, "u8", (TILE * TILE // 2,), "input") for name in ("a", "b")]
        scale = Buffer("scale", "u8", (TILE * TILE // 32,), "input")
        return Program((*codes, scale, _fp32("out", TILE * TILE * units)), (call,))

    flops = 2.0 * TILE**3 * units
    return Probe(
        "matrix", (count, 2 * count), program, lambda trips: _filled(TILE * TILE * units, float(TILE * trips)),
        "PFLOP/s of MXFP4", lambda us: flops / us * 1e-9, _plain,
    )  # fmt: skip


def _exchange(count: int) -> Probe:
    def program(trips: int) -> Program:
        args: dict[str, str | int] = {"ones_ptr": "ones", "out_ptr": "out", "trips": trips}
        call = _call(exchange_kernel, 1, args, {"LANES": LANES}, WARPS)
        return Program((_fp32("ones", LANES), _fp32("out", LANES)), (call,))

    return Probe(
        "exchange", (count, 2 * count), program, lambda trips: _filled(LANES, float(trips)),
        "ns a sum over four waves", _ns, _plain,
    )  # fmt: skip


def _chase(name: str, footprint: int, count: int, *, warm: bool) -> Probe:
    places = max(64, footprint // (4 * LINK))
    following = _ring(places)

    def program(hops: int) -> Program:
        args: dict[str, str | int] = {"ring_ptr": "ring", "out_ptr": "out", "hops": hops}
        call = _call(chase_kernel, 1, args, {"LANES": LINK}, 1)
        return Program((_fp32("ring", places * LINK), _fp32("out", LINK)), (call,))

    def fill(buffer: Buffer, device: Device) -> torch.Tensor:
        lanes = torch.arange(LINK, dtype=torch.int32, device=device)
        links = following() if buffer.name == "ring" else torch.zeros(1, dtype=torch.int32)
        return (links.to(device)[:, None] * LINK + lanes).flatten().view(torch.float32)

    def expected(hops: int) -> torch.Tensor:
        links, place = following(), 0
        for _ in range(hops):
            place = int(links[place])
        return (place * LINK + torch.arange(LINK, dtype=torch.int32)).view(torch.float32)

    return Probe(name, (count, 2 * count), program, expected, "ns a load", _ns, fill, warm)


def _ring(places: int) -> Callable[[], torch.Tensor]:
    """The place after each place [places], of a ring through all of them in a random order."""

    def links() -> torch.Tensor:
        order = torch.randperm(places, generator=torch.Generator().manual_seed(0), dtype=torch.int32)
        after = torch.empty(places, dtype=torch.int32)
        after[order.long()] = order.roll(-1)
        return after

    return links


def _read(name: str, workgroups: int, footprint: int, *, warm: bool) -> Probe:
    count = _pieces(footprint, workgroups)

    def program(pieces: int) -> Program:
        args: dict[str, str | int] = {"ones_ptr": "ones", "out_ptr": "out", "pieces": pieces}
        call = _call(read_kernel, workgroups, args, {"STRIDE": workgroups * PIECE, "PIECE": PIECE}, STREAM_WARPS)
        return Program((_fp32("ones", workgroups * PIECE * pieces), _fp32("out", workgroups * PIECE)), (call,))

    return Probe(
        name, (count, 2 * count), program, lambda pieces: _filled(workgroups * PIECE, float(pieces)),
        f"TB/s into {workgroups} workgroup{'s' * (workgroups > 1)}",
        lambda us: workgroups * PIECE_BYTES / us * 1e-6, _plain, warm,
    )  # fmt: skip


def _write(workgroups: int, footprint: int) -> Probe:
    count = _pieces(footprint, workgroups)

    def program(pieces: int) -> Program:
        args: dict[str, str | int] = {"ones_ptr": "ones", "out_ptr": "out", "pieces": pieces}
        call = _call(write_kernel, workgroups, args, {"STRIDE": workgroups * PIECE, "PIECE": PIECE}, STREAM_WARPS)
        return Program((_fp32("ones", PIECE), _fp32("out", workgroups * PIECE * pieces)), (call,))

    return Probe(
        "write", (count, 2 * count), program, lambda pieces: _filled(workgroups * PIECE * pieces, 1.0),
        f"TB/s out of {workgroups} workgroups", lambda us: workgroups * PIECE_BYTES / us * 1e-6, _plain,
    )  # fmt: skip
