"""The user's folder of compiled kernels."""

from __future__ import annotations

import os
from pathlib import Path


def default_cache() -> Path:
    """``$XDG_CACHE_HOME/mxfp4-tune`` or ``~/.cache/mxfp4-tune``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "mxfp4-tune"
