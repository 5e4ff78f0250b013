"""Registers of the waves of a workgroup, and what they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from search.gfx950.simulator.state.arrays import Array
from search.gfx950.simulator.state.findings import Finding, FindingKind, Place
from search.gfx950.simulator.state.handover import Handover
from search.gfx950.simulator.state.lds import LocalMemory
from search.gfx950.simulator.state.memory import GlobalMemory
from search.gfx950.simulator.state.recording import Recording
from search.gfx950.simulator.state.registers import CONSTANT, EXEC, NUM_SCRATCH, NUM_SGPRS, SCRATCH, SGPR
from search.gfx950.simulator.state.tracking import Tracking

LANES = 64
POISON = np.uint32(0xFFFFDEAD)  # a NaN as f32, as f16, as bf16 (both halves that count) and a wild address
_SHIFT_32 = np.uint64(32)


class WaveGroup:
    """State of ``len(waves)`` waves that execute together.

    Register rows are [waves, 64] uint32 for vector and [waves, 1] for scalar registers, in the index space of
    ``registers``; ``f`` and ``i`` are float32 and int32 views of the same memory. Constants are [1, 1].
    """

    __slots__ = (
        "at_barrier", "env", "f", "full", "i", "lane_cache", "mask", "now", "pc", "q", "scalars", "scc",
        "taken", "tracking", "u", "vectors", "waves",
    )  # fmt: skip

    def __init__(self, env: Environment, waves: Array, vectors: Array, scalars: Array, scc: Array, pc: int) -> None:
        """Wrap ``vectors`` [576, waves, 64] and ``scalars`` [waves, 128], both uint32 and owned by the group."""
        self.env = env
        self.waves = waves
        self.vectors = vectors
        self.scalars = scalars
        self.scc = scc
        self.pc = pc
        self.at_barrier = False
        self.now: Place | None = None
        self.taken: Array = scc
        self.lane_cache: dict[int, Array] = {}
        self.tracking = Tracking()
        self._make_views()
        self.refresh_exec()

    def _make_views(self) -> None:
        self.u: list[Any] = self._rows(np.uint32)
        self.f: list[Any] = self._rows(np.float32)
        self.i: list[Any] = self._rows(np.int32)
        self.q: list[Any] = list(self.scalars.view(np.uint64).T[:, :, None])

    def _rows(self, dtype: Any) -> list[Any]:
        count, accumulators = self.env.num_vgprs, self.env.num_agprs
        vectors = self.vectors.view(dtype)
        rows: list[Any] = [None] * SCRATCH
        rows[:count] = list(vectors[:count])
        rows[256 : 256 + accumulators] = list(vectors[256 : 256 + accumulators])
        rows += list(vectors[SCRATCH : SCRATCH + NUM_SCRATCH])
        rows += list(self.scalars.view(dtype).T[:, :, None])
        return rows + [constant.view(dtype) for constant in self.env.constants]

    @property
    def count(self) -> int:
        """Number of waves."""
        return len(self.waves)

    def refresh_exec(self) -> None:
        """Derive ``mask`` [waves, 64] and ``full`` from the EXEC register."""
        self.lane_cache.pop(EXEC, None)
        self.mask = self.read_mask(EXEC)
        self.full = bool(self.mask.all())

    def read_mask(self, index: int) -> Array:
        """Lane mask in the 64-bit scalar (or constant) ``index`` as bool [waves, 64]."""
        cached = self.lane_cache.get(index)
        if cached is None:
            packed = np.ascontiguousarray(self.read64(index)).view(np.uint8)
            cached = np.unpackbits(packed, axis=1, bitorder="little").view(np.bool_)
            self.lane_cache[index] = cached
        return cached

    def write_mask(self, index: int, lanes: Array) -> None:
        """Write a compare result bool [waves, 64] to a 64-bit scalar; inactive lanes give 0."""
        if lanes.shape[1] != LANES or lanes.shape[0] != self.count:
            lanes = np.broadcast_to(lanes, (self.count, LANES))
        if not self.full:
            lanes = lanes & self.mask
        self.write64(index, np.packbits(lanes, axis=1, bitorder="little").view(np.uint64))
        if index == EXEC:
            self.refresh_exec()
        else:
            self.lane_cache[index] = lanes

    def read64(self, index: int) -> Array:
        """Two consecutive registers as uint64."""
        if SGPR <= index < CONSTANT and not index & 1:
            value: Array = self.q[(index - SGPR) >> 1]
            return value
        low, high = self.u[index], self.u[index + 1]
        return np.asarray(low.astype(np.uint64) | (high.astype(np.uint64) << _SHIFT_32))

    def write64(self, index: int, value: Array) -> None:
        """Write uint64 values to two consecutive registers."""
        if SGPR <= index < CONSTANT and not index & 1:
            self.q[(index - SGPR) >> 1][...] = value
        else:
            np.copyto(self.u[index], value, casting="unsafe")
            np.copyto(self.u[index + 1], value >> _SHIFT_32, casting="unsafe")

    def block(self, index: int, count: int) -> Array:
        """``count`` consecutive vector rows as one view [count, waves, 64] uint32."""
        return self.vectors[index : index + count]

    def take(self, keep: Array) -> WaveGroup:
        """A group with copies of the waves ``keep`` (positions in this group)."""
        return WaveGroup._assemble(self.env, [(self, keep)], self.pc)

    @staticmethod
    def merge(groups: Sequence[WaveGroup]) -> WaveGroup:
        """One group of all waves of ``groups``, which must be at the same place."""
        return WaveGroup._assemble(groups[0].env, [(g, np.arange(g.count)) for g in groups], groups[0].pc)

    @staticmethod
    def _assemble(env: Environment, parts: Sequence[tuple[WaveGroup, Array]], pc: int) -> WaveGroup:
        total = sum(len(keep) for _, keep in parts)
        vectors = np.empty((SCRATCH + NUM_SCRATCH, total, LANES), np.uint32)
        used = (slice(0, env.num_vgprs), slice(256, 256 + env.num_agprs))
        start = 0
        for group, keep in parts:
            for rows in used:
                vectors[rows, start : start + len(keep)] = group.vectors[rows][:, keep]
            start += len(keep)
        result = WaveGroup(
            env,
            np.concatenate([group.waves[keep] for group, keep in parts]),
            vectors,
            np.concatenate([group.scalars[keep] for group, keep in parts]),
            np.concatenate([group.scc[keep] for group, keep in parts]),
            pc,
        )
        result.tracking = Tracking.assemble([(g.tracking, keep, g.waves) for g, keep in parts])
        return result


def initial_group(env: Environment, waves: Array) -> WaveGroup:
    """A group whose registers hold poison, with EXEC all ones."""
    vectors = np.empty((SCRATCH + NUM_SCRATCH, len(waves), LANES), np.uint32)
    vectors[: env.num_vgprs] = POISON
    vectors[256 : 256 + env.num_agprs] = POISON
    scalars = np.full((len(waves), NUM_SGPRS), POISON, np.uint32)
    scalars[:, EXEC - SGPR : EXEC - SGPR + 2] = 0xFFFFFFFF
    return WaveGroup(env, waves, vectors, scalars, np.zeros((len(waves), 1), np.bool_), 0)


MAX_FINDINGS = 200


@dataclass(eq=False)
class Environment:
    """Shared state of one simulation.

    Args:
        workgroups: (x, y, z) of each simulated workgroup.
        wave_workgroup: Position in ``workgroups`` of each wave.
        wave_in_group: Number of each wave in its workgroup.
        num_vgprs, num_agprs: Vector registers that the program names.
        constants: uint32 [1, 1] arrays in the order of their register indices.
        scratch: Private memory, uint32 [dwords, waves, 64], and which dwords were written.
        handover: What waves may read of what others stored in this launch.
        findings: First finding of each kind at each line.
        recording: Executed blocks and what memory instructions touched.
    """

    memory: GlobalMemory
    lds: LocalMemory
    workgroups: Sequence[tuple[int, int, int]]
    wave_workgroup: Array
    wave_in_group: Array
    num_vgprs: int
    num_agprs: int
    constants: Sequence[Array]
    scratch: Array
    scratch_undefined: Array
    handover: Handover
    findings: dict[tuple[FindingKind, int], Finding] = field(default_factory=dict)
    recording: Recording = field(default_factory=Recording)
    global_read_bytes: int = 0
    global_written_bytes: int = 0
    lds_read_bytes: int = 0
    lds_written_bytes: int = 0

    def report(self, kind: FindingKind, group: WaveGroup, where: Array | None, detail: str) -> None:
        """Keep one finding for the instruction that ``group`` executes.

        Args:
            where: Offending waves or lanes, bool [waves] or [waves, …]; None: the first wave.
        """
        place = group.now
        line = place.line if place is not None else 0
        if (kind, line) in self.findings or len(self.findings) >= MAX_FINDINGS:
            return
        position = 0
        if where is not None and where.any():
            position = int(np.argmax(where.reshape(where.shape[0], -1).any(axis=1)))
        wave = int(group.waves[position])
        self.findings[(kind, line)] = Finding(
            kind=kind,
            workgroup=self.workgroups[int(self.wave_workgroup[wave])],
            wave=int(self.wave_in_group[wave]),
            line=line,
            text=place.text if place is not None else "",
            detail=detail,
        )
