"""Short hash of the sources that decide what a configuration becomes."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Final

if sys.version_info >= (3, 11):
    from importlib.resources.abc import Traversable
else:
    from importlib.abc import Traversable

TRITON_SOURCES: Final = ("triton_*.py", "config.py")
NATIVE_SOURCES: Final = (
    *TRITON_SOURCES, "native_*.py", "code_object*.py", "hip_quantize.py", "hip_compiler.py", "aiter_library.py",
    "hip/*.hip", "hip/*.h",
)  # fmt: skip
HEX_DIGITS: Final = 12
# Sources that were rearranged and make the same: the hash before, and that after.
REARRANGED: Final[Mapping[str, str]] = MappingProxyType({})


@cache
def source_hash(patterns: tuple[str, ...] = NATIVE_SOURCES) -> str:
    """First 12 hexadecimal digits of SHA-256 over the sources of ``kernels`` that this process runs.

    Args:
        patterns: Names of the files, relative to the package; default: those of every family.
    """
    digest = hashlib.sha256()
    for name, item in sorted(_sources("", files("kernels")), key=lambda one: one[0]):
        if any(fnmatch(name, pattern) for pattern in patterns):
            content = item.read_bytes().replace(b"\r\n", b"\n")
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:HEX_DIGITS]


def settled(recorded: str) -> str:
    """The hash under which the sources that a row or a trial names are known now."""
    return REARRANGED.get(recorded, recorded)


def _sources(prefix: str, folder: Traversable) -> Iterator[tuple[str, Traversable]]:
    for item in folder.iterdir():
        if item.is_file():
            yield prefix + item.name, item
        elif not prefix and item.name == "hip":
            yield from _sources("hip/", item)
