"""Global memory: NumPy buffers at disjoint fake addresses, with vectorised gather, scatter and bounds checks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from search.gfx950.simulator.state.arrays import WORDS, Array, word_index
from search.gfx950.simulator.state.findings import SimulationError
from search.gfx950.simulator.state.stores import Clash, StoreLog

FIRST_ADDRESS = 0x7EFE_FF80_0000  # set bits in every half, and the second buffer is beyond a multiple of 4 GB
GUARD_BYTES = 1 << 24  # larger than any tile, smaller than the 32-bit offset of a buffer instruction


@dataclass(frozen=True)
class SimulatedBuffer:
    """An array argument, with the part of it that nobody has written yet.

    One ``Buffer`` given to several launches carries what the earlier ones wrote to the later ones.

    Args:
        array: C-contiguous; stores change it in place.
        initialised: False: every byte is undefined until a kernel stores to it.
        writable: False: a store is a finding and changes nothing.
        undefined: 0xFF for each byte that is still undefined, None where every byte is defined.
    """

    array: Array
    initialised: bool = True
    writable: bool = True
    undefined: Array | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Start with everything undefined where asked."""
        if not self.initialised:
            object.__setattr__(self, "undefined", np.full(self.array.nbytes, 0xFF, np.uint8))


class MemoryRegion:
    """One buffer in the fake address space."""

    def __init__(self, name: str, buffer: SimulatedBuffer, base: int) -> None:
        """Place ``buffer`` at ``base``.

        Raises:
            SimulationError: The array is not C-contiguous or not writable.
        """
        array = buffer.array
        if not array.flags.c_contiguous:
            raise SimulationError(f"buffer {name} is not C-contiguous")
        self.name = name
        self.base = base
        self.bytes: Array = array.reshape(-1).view(np.uint8)
        self.size = self.bytes.size
        self.writable = buffer.writable
        self.undefined: Array | None = buffer.undefined
        self.log = StoreLog(array.size, array.itemsize)
        self._views = _word_views(self.bytes)
        self._undefined_views = None if self.undefined is None else _word_views(self.undefined)

    def holds(self, addresses: Array, size: int = 1) -> Array:
        """True where all ``size`` bytes from each address lie in it."""
        return np.asarray((addresses >= self.base) & (addresses <= self.base + self.size - size))

    def read(self, addresses: Array, size: int) -> tuple[Array, Array | None]:
        """``size`` bytes at each of ``addresses``, uint8 [*shape, size], and the mask of undefined bits or None."""
        width, index = word_index(addresses - self.base, size)
        shape = (*addresses.shape, size)
        values = self._views[width].take(index).view(np.uint8).reshape(shape)
        if self._undefined_views is None:
            return values, None
        return values, self._undefined_views[width].take(index).view(np.uint8).reshape(shape)

    def write(self, addresses: Array, values: Array) -> None:
        """Write uint8 ``values`` [n, size] at ``addresses`` [n]; later lanes win."""
        width, index = word_index(addresses - self.base, values.shape[-1])
        self._views[width][index] = np.ascontiguousarray(values).view(WORDS[width]).reshape(index.shape)
        if self._undefined_views is not None:
            self._undefined_views[width][index] = 0


def _word_views(raw: Array) -> dict[int, Array]:
    """``raw`` as whole words of each width; the tail that fills no word is left out."""
    return {width: raw[: raw.size // width * width].view(kind) for width, kind in WORDS.items()}


class GlobalMemory:
    """All buffers of a launch, in address order."""

    def __init__(self, buffers: Sequence[tuple[str, SimulatedBuffer]]) -> None:
        """Lay out ``buffers`` with guard gaps between them; bases are 256-byte aligned."""
        self.regions: list[MemoryRegion] = []
        self.clock = 0  # stores and atomics so far, each instruction of a group one
        self.address_of: dict[str, int] = {}
        base = FIRST_ADDRESS
        for name, buffer in buffers:
            region = MemoryRegion(name, buffer, base)
            self.regions.append(region)
            self.address_of[name] = base
            base += (region.size + GUARD_BYTES + 255) & ~255
        self._bases = [region.base for region in self.regions]

    def region_at(self, address: int) -> MemoryRegion | None:
        """The buffer that holds ``address``, or None."""
        position = bisect_right(self._bases, address) - 1
        if position < 0:
            return None
        region = self.regions[position]
        return region if address < region.base + region.size else None

    def describe(self, address: int) -> str:
        """``address`` relative to the nearest buffer below, for a finding."""
        position = max(bisect_right(self._bases, address) - 1, 0)
        if not self.regions:
            return f"address {address:#x}, no buffers"
        region = self.regions[position]
        return f"address {address:#x} is byte {address - region.base} of {region.name} ({region.size} bytes)"

    def accessible(self, addresses: Array, size: int) -> Array:
        """True where all ``size`` bytes from each address lie in one buffer."""
        inside = np.zeros(addresses.shape, np.bool_)
        for region in self.regions:
            inside |= region.holds(addresses, size)
        return inside

    def read_only(self, addresses: Array) -> Array:
        """True where an address lies in a buffer that no store may change."""
        inside = np.zeros(addresses.shape, np.bool_)
        for region in self.regions:
            if not region.writable:
                inside |= region.holds(addresses)
        return inside

    def _single_region(self, addresses: Array, size: int) -> MemoryRegion | None:
        low = int(addresses.min())
        region = self.region_at(low)
        if region is None or int(addresses.max()) + size > region.base + region.size:
            return None
        return region

    def gather(self, addresses: Array, size: int) -> tuple[Array, Array | None]:
        """Read ``size`` bytes at each address; all must be accessible.

        Args:
            addresses: int64, any shape.
            size: 1, 2, or a multiple of 4 up to 16.

        Returns:
            The bytes as uint8 [*shape, size], and a mask of undefined bits of that shape or None.
        """
        region = self._single_region(addresses, size)
        if region is not None:
            return region.read(addresses, size)
        values = np.zeros((*addresses.shape, size), np.uint8)
        undefined = np.zeros_like(values)
        for part in self.regions:
            here = part.holds(addresses)
            if here.any():
                values[here], shadow = part.read(addresses[here], size)
                if shadow is not None:
                    undefined[here] = shadow
        return values, undefined if undefined.any() else None

    def scatter(self, addresses: Array, values: Array) -> None:
        """Write uint8 ``values`` [n, size] at accessible int64 ``addresses`` [n]; later lanes win."""
        for region in self.regions:
            here = region.holds(addresses)
            if here.any():
                region.write(addresses[here], values[here])

    def store(self, addresses: Array, values: Array, waves: Array) -> Clash | None:
        """As ``scatter``, by ``waves`` [n]; a lane that disagrees with another wave of the launch, or None."""
        if not len(addresses):
            return None
        self.clock += 1
        clash: Clash | None = None
        for region in self.regions:
            here = np.flatnonzero(region.holds(addresses))
            if not len(here):
                continue
            found = _store(region, addresses[here], values[here], waves[here], self.clock)
            if found is not None and clash is None:
                clash = Clash(int(here[found.lane]), found.wave)
            if len(here) == len(addresses):
                break
        return clash

    def changed_regions(self) -> list[MemoryRegion]:
        """Buffers that this launch stored to or changed by atomics."""
        return [region for region in self.regions if region.log.is_changed] if self.clock else []

    def note(self, addresses: Array, size: int, waves: Array, before: Array) -> None:
        """Remember that atomics of ``waves`` [n] changed ``size`` bytes at ``addresses`` [n], from ``before`` [n]."""
        self.clock += 1
        for region in self.regions:
            here = region.holds(addresses)
            if here.any():
                region.log.note(addresses[here] - region.base, size, waves[here], self.clock, before[here])


def _store(region: MemoryRegion, addresses: Array, values: Array, waves: Array, clock: int) -> Clash | None:
    size, log, offsets = values.shape[-1], region.log, addresses - region.base
    log.note(offsets, size, waves, clock)
    earlier = log.earlier_clash(offsets, waves, region.read(addresses, size)[0], values)
    region.write(addresses, values)
    owners = log.own(offsets, waves, size)
    return earlier or log.later_clash(owners, waves, region.read(addresses, size)[0], values)
