"""Memory of the processes that compile, where much of the time goes into many small allocations.

A faster ``malloc``, and a garbage collector that looks for cycles seldom.
"""

from __future__ import annotations

import gc
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
# Objects that come to be before cycles among them are looked for: a decoded kernel has some ten thousand, and no cycle.
YOUNG_OBJECTS: Final = 100_000
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


def calm_collector() -> None:
    """Do not look through what is loaded by now, Triton and torch among it, again, and through the rest seldom."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
