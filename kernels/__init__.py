"""Runtime of the MXFP4 GEMM kernels: formats, kernel families, tuned tables, dispatcher.

``mxfp4_gemm``, ``PackedWeight`` and ``MXFP4Linear`` are loaded when they are first asked for, so that importing a
single module of the package stays cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["MXFP4Linear", "PackedWeight", "mxfp4_gemm"]
_HOMES = {"mxfp4_gemm": "kernels.dispatch", "MXFP4Linear": "kernels.linear", "PackedWeight": "kernels.mxfp4.weights"}


def __getattr__(name: str) -> Any:
    """The public object ``name``, from the module that defines it (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'kernels' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
