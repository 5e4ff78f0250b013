"""Short hash of the sources that decide what a configuration compiles to."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files

DECIDING = ("config.py", "families.py")  # besides every kernel source, triton_*.py
HEX_DIGITS = 12


@cache
def source_hash() -> str:
    """First 12 hexadecimal digits of SHA-256 over the kernel sources that this process runs."""
    digest = hashlib.sha256()
    for item in sorted(files("kernels").iterdir(), key=lambda item: item.name):
        is_kernel = item.name.startswith("triton_") and item.name.endswith(".py")
        if is_kernel or item.name in DECIDING:
            content = item.read_bytes().replace(b"\r\n", b"\n")
            digest.update(f"{item.name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:HEX_DIGITS]
