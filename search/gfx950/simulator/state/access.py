"""Memory accesses of a group: range checks, findings, undefined bits, byte counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from search.gfx950.simulator.state.arrays import Array
from search.gfx950.simulator.state.findings import FindingKind
from search.gfx950.simulator.state.memory import MemoryRegion
from search.gfx950.simulator.state.state import LANES, WaveGroup
from search.gfx950.simulator.state.stores import Clash

_SIGNED: dict[int, Any] = {1: np.int8, 2: np.int16}
_UNSIGNED: dict[int, Any] = {1: np.uint8, 2: np.uint16}


@dataclass(frozen=True, eq=False)
class Access:
    """Byte addresses of one access.

    Args:
        address: int64 [waves, 64] (or broadcastable).
        limit: First position that a buffer descriptor puts out of range; None: no descriptor.
        position: Position that ``limit`` is compared with.
    """

    address: Array
    limit: Array | None = None
    position: Array | None = None

    def in_range(self, size: int) -> Array | None:
        """Lanes whose ``size`` bytes the descriptor covers; None: no descriptor."""
        if self.limit is None or self.position is None:
            return None
        inside: Array = self.position + (size - 1) < self.limit
        return inside


def load_bytes(g: WaveGroup, access: Access, size: int) -> tuple[Array, Array | None]:
    """uint8 [waves, 64, size] (0 where inactive or out of range), and undefined bits of that shape or None."""
    active = _active(g, access, size)
    if active is not None and size > 4 and access.limit is not None:
        partly = access.in_range(4)
        assert partly is not None
        if np.any(partly & g.mask & ~active):
            return _load_by_dword(g, access, size)
    return _load(g, np.broadcast_to(access.address, (g.count, LANES)), active, size)


def _active(g: WaveGroup, access: Access, size: int) -> Array | None:
    """Lanes that access memory, or None for all."""
    inside = access.in_range(size)
    if inside is None:
        return None if g.full else g.mask
    if g.full and inside.all():
        return None
    return np.asarray(inside & g.mask)


def _load_by_dword(g: WaveGroup, access: Access, size: int) -> tuple[Array, Array | None]:
    values = np.zeros((g.count, LANES, size), np.uint8)
    undefined = np.zeros_like(values)
    for start in range(0, size, 4):
        assert access.position is not None
        part = Access(access.address + start, access.limit, access.position + start)
        address = np.broadcast_to(part.address, (g.count, LANES))
        values[:, :, start : start + 4], shadow = _load(g, address, _active(g, part, 4), 4)
        if shadow is not None:
            undefined[:, :, start : start + 4] = shadow
    return values, undefined if undefined.any() else None


def _load(g: WaveGroup, address: Array, active: Array | None, size: int) -> tuple[Array, Array | None]:
    if active is not None and not active.any():
        return np.zeros((g.count, LANES, size), np.uint8), None
    active, address = checked(g, address, active, size)
    if active is None:
        _check_handover(g, address, np.ones((g.count, LANES), np.bool_), size)
        g.env.global_read_bytes += address.size * size
        return g.env.memory.gather(address, size)
    if not active.any():
        return np.zeros((g.count, LANES, size), np.uint8), None
    _check_handover(g, address, active, size)
    g.env.global_read_bytes += int(np.count_nonzero(active)) * size
    anchor = address.reshape(-1)[int(active.argmax())]
    values, undefined = g.env.memory.gather(np.where(active, address, anchor), size)
    values = np.where(active[:, :, None], values, np.uint8(0))
    if undefined is not None:
        undefined = np.where(active[:, :, None], undefined, np.uint8(0))
    return values, undefined


def _check_handover(g: WaveGroup, address: Array, active: Array, size: int) -> None:
    """Report lanes that read what another wave stored in this launch and did not hand over to them."""
    for region in g.env.memory.changed_regions():
        here = active & region.holds(address)
        if here.any():
            _report_stale(g, region, address, here, size)


def _report_stale(g: WaveGroup, region: MemoryRegion, address: Array, here: Array, size: int) -> None:
    handover, readers = g.env.handover, np.broadcast_to(g.waves[:, None], here.shape)[here]
    writers, clocks = region.log.latest(address[here] - region.base, size)
    stale = handover.stale(readers, writers, clocks)
    if not stale.any():
        return
    where = np.zeros_like(here)
    where[here] = stale.any(axis=1)
    lane, item = (int(index) for index in np.argwhere(stale)[0])
    writer = int(writers[lane, item])
    workgroup = g.env.workgroups[int(g.env.wave_workgroup[writer])]
    reason = handover.reason(int(readers[lane]), writer, int(clocks[lane, item]))
    place = g.env.memory.describe(int(address[here][lane]))
    g.env.report(FindingKind.STALE_READ, g, where, f"{place}, which workgroup {workgroup} stored {reason}")


def checked(g: WaveGroup, address: Array, active: Array | None, size: int) -> tuple[Array | None, Array]:
    """Report lanes that no buffer covers and take them out of ``active``."""
    memory = g.env.memory
    if active is None:
        low, high = int(address.min()), int(address.max())
    else:
        chosen = address[active]
        low, high = int(chosen.min()), int(chosen.max())
    region = memory.region_at(low)
    if region is not None:
        g.env.recording.note_global(g.now, region.name, g.waves, address, active, size)
    if region is not None and high + size <= region.base + region.size:
        return active, address
    wanted = np.ones((g.count, LANES), np.bool_) if active is None else active
    inside = memory.accessible(address, size)
    outside = wanted & ~inside
    if outside.any():
        first = int(address[outside][0])
        accessed = "1 byte" if size == 1 else f"{size} bytes"
        g.env.report(FindingKind.OUT_OF_BOUNDS, g, outside, f"{accessed} at {memory.describe(first)}")
        return wanted & inside, address
    return active, address


def checked_store(g: WaveGroup, address: Array, active: Array | None, size: int) -> tuple[Array, Array]:
    """As :func:`checked`, for what is changed: lanes in a buffer that is only read are reported and taken out too."""
    active, address = checked(g, address, active, size)
    chosen = np.ones((g.count, LANES), np.bool_) if active is None else active
    forbidden = chosen & g.env.memory.read_only(address)
    if forbidden.any():
        place = g.env.memory.describe(int(address[forbidden][0]))
        g.env.report(FindingKind.READ_ONLY_STORE, g, forbidden, f"{place}, which is an operand")
    return chosen & ~forbidden, address


def report_overtaken(g: WaveGroup, flat: Array, active: Array, size: int) -> None:
    """Report a write to bytes of the LDS that another wave read since the last barrier."""
    found = g.env.lds.foreign_reader(g.waves, flat, active, size)
    if found is not None:
        detail = f"overwrites LDS that wave {found[1]} read, with no barrier in between"
        g.env.report(FindingKind.LDS_RACE, g, found[0], detail)


def write_loaded(g: WaveGroup, data: int, values: Array, undefined: Array | None, width: Width) -> None:
    """Write loaded bytes to the data registers in active lanes, with their undefined bits."""
    words = extended(values, width)
    block = g.block(data, words.shape[0])
    if width.half:
        keep = np.uint32(0xFFFF0000 if width.half == "lo" else 0xFFFF)
        words = (block & keep) | words
    if g.full:
        block[...] = words
    else:
        np.copyto(block, words, where=g.mask)
    if undefined is not None and undefined.any():
        bits = extended(undefined, width)
        for offset in range(words.shape[0]):
            old = g.tracking.undefined.get(data + offset, np.zeros((1, 1), np.uint32))
            g.tracking.set_undefined(data + offset, np.where(g.mask, bits[offset], old))


def extended(values: Array, width: Width) -> Array:
    """uint8 [waves, 64, size] as uint32 registers [n, waves, 64], extended or placed as ``width`` says."""
    if width.size >= 4:
        return np.asarray(np.ascontiguousarray(values).view(np.uint32).transpose(2, 0, 1))
    raw = np.ascontiguousarray(values)
    kinds = _SIGNED if width.signed else _UNSIGNED
    full = raw.view(kinds[width.size])[:, :, 0].astype(np.int32).view(np.uint32)
    if width.half:
        full = full & np.uint32(0xFFFF)
        full = full << np.uint32(16) if width.half == "hi" else full
    return np.asarray(full[None])


def store_bytes(g: WaveGroup, access: Access, values: Array) -> None:
    """Write uint8 ``values`` [waves, 64, size] where active and in range."""
    size = values.shape[-1]
    active = _active(g, access, size)
    if active is not None and size > 4 and access.position is not None:
        partly = access.in_range(4)
        assert partly is not None
        if np.any(partly & g.mask & ~active):
            for start in range(0, size, 4):
                part = Access(access.address + start, access.limit, access.position + start)
                store_bytes(g, part, values[:, :, start : start + 4])
            return
    if active is not None and not active.any():
        return
    address = np.broadcast_to(access.address, (g.count, LANES))
    chosen, address = checked_store(g, address, active, size)
    g.env.global_written_bytes += int(np.count_nonzero(chosen)) * size
    waves = np.broadcast_to(g.waves[:, None], chosen.shape)
    clash = g.env.memory.store(address[chosen], values[chosen], waves[chosen])
    if clash is not None:
        _report_clash(g, chosen, int(address[chosen][clash.lane]), clash)


def _report_clash(g: WaveGroup, chosen: Array, address: int, clash: Clash) -> None:
    where = np.zeros_like(chosen)
    where.flat[np.flatnonzero(chosen)[clash.lane]] = True
    workgroup = g.env.workgroups[int(g.env.wave_workgroup[clash.wave])]
    detail = f"{g.env.memory.describe(address)}, where workgroup {workgroup} stored another value in this launch"
    g.env.report(FindingKind.CONFLICTING_STORES, g, where, detail)


@dataclass(frozen=True)
class Width:
    """What one load or store moves per lane.

    Args:
        size: Bytes in memory.
        signed: A loaded byte or word is sign-extended.
        half: ``lo`` or ``hi``: the 16-bit half of the register that is used, the other one stays.
    """

    size: int
    signed: bool = False
    half: str = ""

    @property
    def registers(self) -> int:
        """Data registers."""
        return max(1, self.size // 4)
