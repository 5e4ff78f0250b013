"""The HIP compiler of this machine, and the mark of tests that need one."""

from __future__ import annotations

import pytest

from kernels.errors import InputError
from kernels.rocm.compiler import HipCompiler, find_compiler


def installed() -> HipCompiler | None:
    try:
        return find_compiler()
    except InputError:
        return None


needs_compiler = pytest.mark.skipif(installed() is None, reason="no HIP compiler")
