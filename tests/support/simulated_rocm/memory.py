"""Device memory of the stand-in: host tensors that are taken for tensors of a GPU, found again by their addresses."""

from __future__ import annotations

import ctypes
import weakref
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
import torch
from numpy.typing import NDArray

MARK = "_of_simulated_gpu"


class _Reference(weakref.ref["torch.Tensor"]):
    """To a tensor; a set of those that live can hold it."""

    __slots__ = ("__weakref__",)

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


@dataclass(frozen=True)
class Span:
    """Bytes from ``start`` on."""

    start: int
    size: int

    @property
    def end(self) -> int:
        """First byte behind it."""
        return self.start + self.size

    def holds(self, address: int) -> bool:
        """Whether ``address`` lies in it."""
        return self.start <= address < self.end

    def read(self) -> NDArray[np.uint8]:
        """A copy of the bytes."""
        return np.frombuffer(ctypes.string_at(self.start, self.size), np.uint8).copy()

    def write(self, values: NDArray[np.uint8]) -> None:
        """Replace the bytes."""
        ctypes.memmove(self.start, values.ctypes.data, self.size)


@dataclass(eq=False)
class Allocation:
    """A storage, the tensors that view it, whether a kernel wrote it, and digests of parts of its content."""

    span: Span
    tensors: weakref.WeakSet[_Reference] = field(default_factory=weakref.WeakSet)
    is_result: bool = False
    digests: dict[Span, tuple[int, bytes]] = field(default_factory=dict)

    def alive(self) -> torch.Tensor | None:
        """A tensor that holds the storage, or None."""
        return next((tensor for reference in self.tensors if (tensor := reference()) is not None), None)

    def version(self) -> int:
        """Changes with each write of torch."""
        tensor = self.alive()
        assert tensor is not None
        return int(tensor._version)


class DeviceMemory:
    """Every allocation."""

    def __init__(self) -> None:
        self.epoch = 0  # grows whenever something may have been written
        self._allocations: dict[int, Allocation] = {}
        self._starting_at: dict[int, dict[Span, weakref.ref[torch.Tensor]]] = {}  # tensors by address

    def mark(self, tensor: torch.Tensor) -> torch.Tensor:
        """Take ``tensor`` for one of the GPU."""
        if tensor.device.type != "cpu" or hasattr(tensor, MARK):
            return tensor
        storage = tensor.untyped_storage()
        whole = Span(storage.data_ptr(), storage.nbytes())
        allocation = self._allocations.get(whole.start)
        if allocation is None or allocation.span != whole or allocation.alive() is None:
            allocation = self._allocations[whole.start] = Allocation(whole)
        reference = _Reference(tensor)
        setattr(tensor, MARK, (allocation, reference))
        allocation.tensors.add(reference)
        span = Span(tensor.data_ptr(), _reach(tensor))
        self._starting_at.setdefault(span.start, {})[span] = reference
        return tensor

    def allocation_at(self, address: int) -> Allocation | None:
        """The living allocation that holds ``address``."""
        for reference in self._starting_at.get(address, {}).values():
            tensor = reference()
            if tensor is not None:
                return allocation_of(tensor)
        for allocation in list(self._allocations.values()):
            if allocation.span.holds(address) and allocation.alive() is not None:
                return allocation
        return None

    def narrowest(self, allocation: Allocation, address: int) -> Span:
        """Smallest tensor that begins at ``address``; else everything from there to the allocation's end."""
        here = self._starting_at.get(address, {})
        spans = [span for span, ref in here.items() if ref() is not None and span.size]
        return min(spans, key=lambda span: span.size, default=Span(address, allocation.span.end - address))

    def digest(self, allocation: Allocation, span: Span) -> bytes:
        """Of the content of ``span``."""
        version = allocation.version()
        known = allocation.digests.get(span)
        if known is None or known[0] != version:
            known = version, blake2b(ctypes.string_at(span.start, span.size), digest_size=16).digest()
            allocation.digests[span] = known
        return known[1]

    def write(self, allocation: Allocation, span: Span, values: NDArray[np.uint8], digest: bytes) -> None:
        """Replace the content of ``span``, whose digest is ``digest`` afterwards."""
        self.epoch += 1
        span.write(values)
        allocation.is_result = True
        overlapping = [other for other in allocation.digests if other.start < span.end and span.start < other.end]
        for other in overlapping:
            del allocation.digests[other]
        allocation.digests[span] = allocation.version(), digest


def allocation_of(tensor: torch.Tensor) -> Allocation:
    """Where a marked tensor lives."""
    allocation: Allocation = getattr(tensor, MARK)[0]
    return allocation


def is_marked(tensor: object) -> bool:
    """Whether ``tensor`` is one of the GPU."""
    return hasattr(tensor, MARK)


def _reach(tensor: torch.Tensor) -> int:
    """Bytes from the first element to behind the last."""
    if not tensor.numel():
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()
