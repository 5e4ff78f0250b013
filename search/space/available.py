"""Which families this machine can search: what each needs besides Triton, and what is said where that is absent."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from kernels.config import KernelConfig
from kernels.device import GFX950, DeviceKey
from kernels.errors import InputError
from kernels.rocm.code_objects import find_catalogue
from kernels.rocm.compiler import LINKER, find_compiler
from search.gfx950.llvm import ToolNotFoundError, find_tool
from search.space.space import SearchSpace

DISASSEMBLER = ("llvm-objdump", "llvm-readelf")


def absence(family: str, device: DeviceKey, *, offline: bool) -> str | None:
    """Why ``family`` cannot be searched, after a semicolon the cure where there is one; None if it can.

    Args:
        family: Name in ``FAMILIES``.
        device: To search for.
        offline: Whether candidates are judged by the simulator instead of a GPU.
    """
    needs = _NEEDS.get(family)
    if needs is None:
        return None
    if device.arch != GFX950.arch:
        return f"its kernels are for {GFX950.arch}, not for {device.arch}"
    return needs(offline)


def config_absence(family: str, config: KernelConfig, device: DeviceKey, *, offline: bool) -> str | None:
    """As :func:`absence`, for one configuration of ``family``: it may name a quantise kernel that needs a compiler."""
    reason = absence(family, device, offline=offline)
    if reason is None and config.to_dict().get("quantize_kernel") == "hip":
        return no_hip_compiler(offline)
    return reason


def no_hip_compiler(offline: bool) -> str | None:
    """What is missing of a HIP compiler; a linker too where code is to run on a GPU."""
    try:
        compiler = find_compiler()
    except InputError as error:
        return _reason(error)
    if offline or compiler.linker() is not None:
        return None
    return f"{compiler} has no {LINKER}; install lld of the same LLVM"


def no_code_objects(offline: bool) -> str | None:
    """What is missing of AITER's code objects; a disassembler too where the simulator executes them."""
    try:
        find_catalogue()
        for tool in DISASSEMBLER if offline else ():
            find_tool(tool)
    except (InputError, ToolNotFoundError) as error:
        return _reason(error)
    return None


def _reason(error: Exception) -> str:
    """The error's text as it can stand after a colon: a semicolon before the cure."""
    return str(error).replace(": ", "; ", 1)


def aiter_installed() -> bool:
    """Whether ``import aiter`` finds a package; a mere folder of that name, as of an unpacked wheel, is none."""
    spec = importlib.util.find_spec("aiter")
    return spec is not None and spec.origin is not None


def no_aiter(offline: bool) -> str | None:
    """What is missing of AITER's Python package, which is not imported here."""
    if offline:
        return "AITER chooses its kernel when it is called, so it is measured on a GPU only"
    if not aiter_installed():
        return "aiter is not installed; pip install amd-aiter on ROCm"
    return None


_NEEDS: Mapping[str, Callable[[bool], str | None]] = {
    "staged_hip": no_hip_compiler,
    "staged_ck": no_code_objects,
    "aiter": no_aiter,
}
NATIVE_FAMILIES = frozenset(_NEEDS)  # whose kernels Triton does not make


def available_spaces(
    spaces: Mapping[str, SearchSpace], asked: Sequence[str] | None, device: DeviceKey, *, offline: bool
) -> tuple[dict[str, SearchSpace], list[str]]:
    """The spaces that can be searched, and a line for each thing that is left out.

    Args:
        spaces: By family.
        asked: Families that the user named; None if none was.
        device: To search for.
        offline: As for :func:`absence`.

    Raises:
        InputError: A family that the user named cannot be searched, or none can.
    """
    found: dict[str, SearchSpace] = {}
    left_out: list[str] = []
    for family, space in spaces.items():
        reason = absence(family, device, offline=offline)
        if reason is not None and asked is not None:
            raise InputError(f"--families {family}: {reason}")
        if reason is not None:
            left_out.append(f"{family} is left out: {reason}")
            continue
        found[family], lines = _without_hip_quantizer(space, offline)
        left_out += lines
    if not found:
        raise InputError(f"no family can be searched: {'; '.join(left_out)}")
    return found, left_out


def _without_hip_quantizer(space: SearchSpace, offline: bool) -> tuple[SearchSpace, list[str]]:
    """``space`` without the choices that need a HIP compiler, where there is none and others are left."""
    choices = space.parameters.get("quantize_kernel", ())
    reason = no_hip_compiler(offline) if "hip" in choices and len(choices) > 1 else None
    if reason is None:
        return space, []
    fewer = tuple(choice for choice in choices if choice != "hip")
    defaults = tuple(config for config in space.defaults if config.to_dict()["quantize_kernel"] != "hip")
    reduced = replace(space, parameters={**space.parameters, "quantize_kernel": fewer}, defaults=defaults)
    return reduced, [f"{space.family} with quantize_kernel=hip is left out: {reason}"]
