"""A library's function in the place of a kernel: it gets tensors over the memory that a plan knows by its address."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernels.device import DeviceKey
from kernels.launches.program import Built, KernelCall, Loaded, PointerSpec, Runner
from kernels.triton import interpreter

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class LibraryKernel:
    """A library's function.

    Args:
        prepare: Imports the library, or raises :class:`~kernels.errors.UnavailableError`.
        run: Takes each argument by name: a tensor over a buffer's memory, flat or in the buffer's shape, or an integer.
            It works on the current stream.
    """

    name: str
    arg_names: tuple[str, ...]
    prepare: Callable[[], object]
    run: Callable[..., None]

    def build(self, call: KernelCall, pointers: Mapping[str, PointerSpec], device: DeviceKey) -> Built:
        """The library builds what it needs when it is called."""
        return Built()

    def load(self, call: KernelCall, pointers: Mapping[str, PointerSpec]) -> Loaded:
        """Import the library; the result calls it on the current GPU, or on the CPU under Triton's interpreter.

        Raises:
            UnavailableError: It cannot be imported.
        """
        import torch

        self.prepare()
        cpu = interpreter.interpreting()
        device = torch.device("cpu") if cpu else torch.device("cuda", torch.cuda.current_device())
        return Loaded(self.name, on_tensors(self.run, call, pointers, device))


def on_tensors(
    function: Callable[..., None], call: KernelCall, pointers: Mapping[str, PointerSpec], device: torch.device
) -> Runner:
    """What calls ``function`` with each argument of ``call`` by name, tensors of ``device`` in place of addresses."""
    behind = {name: pointers[value] for name, value in call.args.items() if isinstance(value, str)}

    def run(*values: Any) -> None:
        given: dict[str, Any] = dict(zip(call.kernel.arg_names, values, strict=True))
        for name, spec in behind.items():
            given[name] = tensor_at(given[name], spec, device)
        function(**given)

    return run


@dataclass(frozen=True)
class _DeviceMemory:
    """Memory of a GPU for ``torch.as_tensor``, which knows the interface on CUDA and ROCm."""

    __cuda_array_interface__: Mapping[str, Any]


def tensor_at(address: int, spec: PointerSpec, device: torch.device) -> torch.Tensor:
    """Flat tensor over memory that somebody else keeps alive."""
    import torch

    if device.type == "cpu":
        memory = (ctypes.c_uint8 * spec.bytes).from_address(address)
        return torch.frombuffer(memory, dtype=spec.dtype)
    shape = {"shape": (spec.bytes,), "typestr": "|u1", "data": (address, False), "strides": None, "version": 2}
    return torch.as_tensor(_DeviceMemory(shape), device=device).view(spec.dtype)
