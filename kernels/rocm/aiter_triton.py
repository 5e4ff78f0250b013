"""AITER's own Triton kernels: where their sources lie, and each as a plain ``triton.jit`` function.

They are AMD's files and are read where AITER is installed or unpacked. AITER's package initialisers build libraries and
ask for a GPU, so they are passed by: a kernel's module is imported from folders that are packages without code of their
own, unless AITER itself is imported already. Known are the layout of AITER 0.1.7 and the later one, in rooms.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import triton
from triton.runtime.interpreter import InterpretedFunction

from kernels.errors import InputError, before_cure
from kernels.rocm.code_objects import PATH_VARIABLE, aiter_roots

ROOM: Final = "aiter.ops.triton"
KERNELS: Final = f"{ROOM}._triton_kernels"
CHOOSER: Final = f"{ROOM}.utils.gemm_config_utils"  # asks for the device when it is imported


@dataclass(frozen=True)
class Source:
    """One kernel of AITER under the names that it has had.

    Args:
        names: Of the function, newest first.
        modules: That hold it, below ``_triton_kernels``, newest first.
    """

    names: tuple[str, ...]
    modules: tuple[str, ...]


FUSED: Final = Source(("_gemm_a16wfp4_preshuffle_kernel",), ("gemm.basic.gemm_a16wfp4",))
PACKED: Final = Source(
    ("_gemm_afp4wfp4_preshuffle_kernel", "_gemm_afp4_wfp4_kernel_preshuffled_weight_scales"),
    ("gemm.basic.gemm_afp4wfp4", "gemm_afp4wfp4"),
)
REDUCE: Final = Source(
    ("_gemm_splitk_reduce_kernel", "_gemm_afp4_wfp4_reduce_kernel"), ("common.splitk_reduce", "gemm_afp4wfp4")
)


def triton_root() -> Path:
    """The folder that holds AITER's package ``aiter`` with its Triton kernels.

    Raises:
        InputError: There is none.
    """
    for root in aiter_roots():
        if (root / KERNELS.replace(".", "/")).is_dir():
            return root
    raise InputError(
        f"AITER's Triton kernels are not found: pip install amd-aiter, or set {PATH_VARIABLE} to the folder that its "
        "wheel was unpacked to"
    )


def lacking_kernel(*sources: Source) -> str | None:
    """What this machine lacks of ``sources``, after a semicolon the cure; None if there is nothing."""
    try:
        for source in sources:
            find_kernel(source)
    except InputError as error:
        return before_cure(error)
    return None


def find_kernel(source: Source) -> Any:
    """The kernel of the AITER that is found now.

    Raises:
        InputError: There is no AITER, or it has no such kernel.
    """
    return _kernel(triton_root(), source)


@cache
def _kernel(root: Path, source: Source) -> Any:
    with _packages_without_code(root):
        for module in source.modules:
            functions = _functions(f"{KERNELS}.{module}")
            for name in source.names:
                if name in functions:
                    return _plain(functions[name])
    raise InputError(f"the AITER in {root} has no kernel {source.names[0]}: name a newer one in {PATH_VARIABLE}")


def _functions(module: str) -> dict[str, Any]:
    """What a module defines; nothing where this AITER does not have it."""
    try:
        return vars(importlib.import_module(module))
    except ModuleNotFoundError:
        return {}


def _plain(function: Any) -> Any:
    """``function`` without the heuristics and tuners round it."""
    while not isinstance(function, triton.JITFunction | InterpretedFunction):
        function = function.fn
    return function


@contextmanager
def _packages_without_code(root: Path) -> Iterator[None]:
    """AITER's folders as packages for the time of an import; nothing of them stays behind."""
    if "aiter" in sys.modules:
        yield
        return
    folders = [root / "aiter", root / "aiter/ops", root / "aiter/ops/triton"]
    folders += [folder for room in ("_triton_kernels", "utils") for folder in (folders[-1] / room).glob("**/")]
    sys.modules |= {package.__name__: package for package in (_package(root, folder) for folder in folders)}
    chooser = ModuleType(CHOOSER)
    chooser.__dict__["get_gemm_config"] = None
    sys.modules[CHOOSER] = chooser
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name == "aiter" or name.startswith("aiter.")]:
            del sys.modules[name]


def _package(root: Path, folder: Path) -> ModuleType:
    package = ModuleType(".".join(folder.relative_to(root).parts))
    package.__path__ = [str(folder)]
    return package
