"""Short hash of the sources that decide what a configuration becomes; comments and docstrings do not count."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

TRITON_SOURCES: Final = (
    "config.py", "families/fused.py", "families/stages.py", "triton/decoded.py",
    "triton/gemm.py", "triton/products.py", "triton/quantize.py", "triton/tiles.py",
)  # fmt: skip
HIP_SOURCES: Final = (
    *TRITON_SOURCES, "hip/gemm.hip", "hip/gemm_device.h", "hip/gemm_loop.h", "hip/gemm_operands.h", "hip/gemm_step.h",
    "hip/gemm_store.h", "hip/gemm_tile.h", "hip/mxfp4.h", "hip/quantize.hip", "launches/native.py", "rocm/compiler.py",
)  # fmt: skip
CODE_OBJECT_SOURCES: Final = (*HIP_SOURCES, "launches/code_object.py", "rocm/code_objects.py")
HEX_DIGITS: Final = 12
STUDY: Final = "study"  # stands for all families together: what the name of a study holds
FUSED_HASHES: Final = (
    "df574bb3273c", "57566879e7f7", "cd72b6a120ea", "70ebca89bdae", "5ccc4819cdfb", "41cb3343a639", "41865a488d68",
    "e763711c1169",
)  # fmt: skip
AITER_TRITON_HASHES: Final = (
    "f7f7250f084c", "095c5ce010d4", "ad306add2e9b", "7b9fc7f67f24", "01aa57b9ea0e", "021d0d1ec72b",
)  # fmt: skip
# Hashes of each family's sources that make the same, oldest first: what was made under one of them was made by the
# last. Since the first ones, in this order: rearranged; the register of the FP4 conversion (the same on devices without
# it; the table of those with it is a new one); texts of refusals and comments of the HIP sources; a family more, twice;
# one function that hands over for every kernel with tickets; for devices without FP4 units, values decoded from words
# and launches that overlap; pads along K that count where indices of rounded A are said to fit 32 bits (another code
# for millions of rows only); the K loops in one place, and for devices without FP4 units words read side by side;
# launches that all overlap there.
REARRANGED: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "fused": FUSED_HASHES,
        "fused_splitk_atomic": FUSED_HASHES,
        "fused_splitk_workspace": FUSED_HASHES,
        "fused_splitk_ticket": (
            "29b50dd76def", "ba02feba7827", "353be517b75a", "a8cd66c6dd5f", "43ec6a0a4ef3", "508f2b0e4e28",
        ),
        "staged_triton": (
            "de630f329dbf", "4eee1cd26d37", "271a07203285", "39e5edba3ac2", "7e1227456e6c", "73616a3e2302",
            "af6ad881328d", "3595ba992172", "ef891ce692a7",
        ),
        "staged_splitk_ticket": (
            "6831eb82f29e", "208d32efabed", "934f9db61936", "c835e60027e7", "7a87c05d1724", "9b536b8cd3ea",
        ),
        "staged_hip": ("75045e74bf4d", "b0a584ae1286", "8bde312829d5", "36d84ad500fb", "2f557570e52a", "b4b01b19864c"),
        "staged_ck": ("a941ac1c080a", "a2b3baea899b", "580c078b14fc", "392a21c84370", "987d7102f344", "7c686801eedd"),
        "aiter_triton_a4w4": AITER_TRITON_HASHES,
        "aiter_triton_a16w4": AITER_TRITON_HASHES,
        STUDY: (
            "3a91bffaeb7c", "8fd3ef6c6342", "5ec722cb0cf1", "bbcfd47d2b3d", "740a83273624", "e83f849cf609",
            "a0fa434da33d", "80667129ea54", "e5187b570c10",
        ),
    }
)  # fmt: skip


@cache
def source_hash(names: tuple[str, ...]) -> str:
    """First 12 hexadecimal digits of SHA-256 over sources of ``kernels`` that this process runs."""
    digest = hashlib.sha256()
    for name in sorted(set(names)):
        text = files("kernels").joinpath(name).read_bytes().decode().replace("\r\n", "\n")
        content = (_program(text) if name.endswith(".py") else text).encode()
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:HEX_DIGITS]


@cache
def _program(text: str) -> str:
    """What counts of a Python source; most are of several families."""
    return _syntax(ast.parse(text))


def settled(recorded: str, family: str) -> str:
    """The hash under which the sources that a row or a trial of ``family`` names are known now.

    Args:
        recorded: Hash of a row, a trial or, for :data:`STUDY`, of a study's name.
        family: Name of the family, or :data:`STUDY`.
    """
    hashes = REARRANGED.get(family, ())
    return hashes[-1] if recorded in hashes else recorded


def _syntax(node: Any) -> str:
    """The tree as text that every Python writes alike: no docstring, no position, no field that is empty."""
    if isinstance(node, list):
        return f"[{','.join(map(_syntax, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = dict(ast.iter_fields(node))
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        fields["body"] = node.body[ast.get_docstring(node, clean=False) is not None :]
    told = (f"{name}={_syntax(value)}" for name, value in fields.items() if value not in (None, []) and name != "kind")
    return f"{type(node).__name__}({','.join(told)})"
