"""A faster ``malloc`` for the processes that compile, where much of the time goes into many small allocations."""

from __future__ import annotations

import os
from collections.abc import Mapping
from ctypes.util import find_library
from functools import cache
from typing import Final

LIBRARIES: Final = ("tcmalloc_minimal", "tcmalloc")
PACKAGE: Final = "libtcmalloc-minimal4"  # of Debian and Ubuntu
# glibc's own allocator keeps up to this many freed pieces of each size at hand, instead of 7 (GNU C Library manual,
# memory allocation tunables); versions that allow fewer ignore it.
GLIBC: Final = "glibc.malloc.tcache_count=65535"
CHOSEN_BY_USER: Final = ("LD_PRELOAD", "GLIBC_TUNABLES")


@cache
def installed() -> str | None:
    """File name of tcmalloc as the dynamic linker knows it."""
    return next(filter(None, map(find_library, LIBRARIES)), None)


def fast_malloc(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Environment variables that give a new process the fastest allocator here; none where the user chose one.

    ``benchmarks/offline_throughput.py`` measures what they are worth.
    """
    if any(environment.get(name) for name in CHOSEN_BY_USER):
        return {}
    library = installed()
    return {"GLIBC_TUNABLES": GLIBC} if library is None else {"LD_PRELOAD": library}
