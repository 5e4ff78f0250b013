"""One kernel launch made ready: compiled and loaded, or interpreted, with nothing left to decide between calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from kernels.families import triton_functions
from kernels.launches.program import Buffer, KernelCall, PointerSpec, Runner

TORCH_DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32, "u8": torch.uint8, "i32": torch.int32}
MakeRunner = Callable[[KernelCall, Mapping[str, PointerSpec]], Runner]


def make_runner(call: KernelCall, pointers: Mapping[str, PointerSpec]) -> Runner:
    """What launches ``call`` on addresses, or interprets it.

    Raises:
        TritonError: The compiler or the device's limits reject it; also RuntimeError or IndexError from inside.
        KernelError: A kernel that Triton does not make cannot be built, or a library cannot be imported.
    """
    settle_cache_keys()  # those of the processes that tuned and compiled before
    return call.kernel.load(call, pointers).run


def settle_cache_keys() -> None:
    """Hash every kernel's source in one order; to be called before a process compiles its first kernel.

    Triton hashes a kernel together with the device functions that it calls, when it first needs the key. Until
    3.6 (``DependenciesFinder._update_hash``) the globals of such a function count only if another kernel had it
    hashed before, so that a process that quantised first had another key for the fused kernel, and what it compiled
    ahead was compiled again in the GPU's process. The first kernel here is the one that most processes hash first.
    """
    for function in triton_functions():
        getattr(function, "cache_key", None)  # an interpreted kernel has none


def allocate(buffer: Buffer, device: torch.device | str) -> torch.Tensor:
    """Tensor for ``buffer``: zeros for tickets, else uninitialised."""
    make = torch.zeros if buffer.role == "tickets" else torch.empty
    return make(buffer.shape, dtype=TORCH_DTYPES[buffer.dtype], device=device)


def spec_of(tensor: torch.Tensor) -> PointerSpec:
    """What holds of the tensor's address."""
    reach = int(tensor.untyped_storage().nbytes()) - int(tensor.storage_offset()) * tensor.dtype.itemsize
    return PointerSpec(tensor.dtype, reach, tensor.data_ptr() % 16 == 0)


def run_call(call: KernelCall, tensors: Mapping[str, torch.Tensor]) -> None:
    """Make ``call`` ready and launch or interpret it once, on a tensor for each buffer."""
    run = make_runner(call, {name: spec_of(tensor) for name, tensor in tensors.items()})
    addresses = {name: tensors[value].data_ptr() for name, value in call.args.items() if isinstance(value, str)}
    given = {**call.args, **call.constexprs, **addresses}
    run(*(given[name] for name in call.kernel.arg_names))
