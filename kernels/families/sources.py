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
    "triton/gemm.py", "triton/quantize.py", "triton/tiles.py",
)  # fmt: skip
HIP_SOURCES: Final = (
    *TRITON_SOURCES, "hip/gemm.hip", "hip/gemm_device.h", "hip/gemm_loop.h", "hip/gemm_operands.h", "hip/gemm_step.h",
    "hip/gemm_store.h", "hip/gemm_tile.h", "hip/mxfp4.h", "hip/quantize.hip", "launches/native.py", "rocm/compiler.py",
)  # fmt: skip
CODE_OBJECT_SOURCES: Final = (*HIP_SOURCES, "launches/code_object.py", "rocm/code_objects.py")
HEX_DIGITS: Final = 12
STUDY: Final = "study"  # stands for all families together: what the name of a study holds
# Sources that were rearranged and make the same: the hash before, and what it is now, by family.
REARRANGED: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "df574bb3273c": {
            "fused": "57566879e7f7",
            "fused_splitk_atomic": "57566879e7f7",
            "fused_splitk_workspace": "57566879e7f7",
        },
        "de630f329dbf": {
            "staged_triton": "271a07203285",
        },
        "4eee1cd26d37": {
            "staged_triton": "271a07203285",
        },
        # The register of the FP4 conversion: the same on devices without it; the table of those with it is a new one.
        "57566879e7f7": {
            "fused": "cd72b6a120ea",
            "fused_splitk_atomic": "cd72b6a120ea",
            "fused_splitk_workspace": "cd72b6a120ea",
        },
        "271a07203285": {
            "staged_triton": "39e5edba3ac2",
        },
        # Texts of refusals and comments of the HIP sources.
        "cd72b6a120ea": {
            "fused": "70ebca89bdae",
            "fused_splitk_atomic": "70ebca89bdae",
            "fused_splitk_workspace": "70ebca89bdae",
        },
        "39e5edba3ac2": {
            "staged_triton": "7e1227456e6c",
        },
        "75045e74bf4d": {
            "staged_hip": "b0a584ae1286",
        },
        "a941ac1c080a": {
            "staged_ck": "a2b3baea899b",
        },
        "f7f7250f084c": {
            "aiter_triton_a4w4": "095c5ce010d4",
            "aiter_triton_a16w4": "095c5ce010d4",
        },
        "3a91bffaeb7c": {
            STUDY: "8fd3ef6c6342",
        },
        # A family more, and another.
        "8fd3ef6c6342": {
            STUDY: "5ec722cb0cf1",
        },
        "5ec722cb0cf1": {
            STUDY: "bbcfd47d2b3d",
        },
        # One function hands over for every kernel with tickets.
        "29b50dd76def": {
            "fused_splitk_ticket": "ba02feba7827",
        },
        "6831eb82f29e": {
            "staged_splitk_ticket": "208d32efabed",
        },
        "bbcfd47d2b3d": {
            STUDY: "740a83273624",
        },
        # Devices without FP4 units: values decoded from words, launches that overlap. Code of gfx950 is the same.
        "70ebca89bdae": {
            "fused": "5ccc4819cdfb",
            "fused_splitk_atomic": "5ccc4819cdfb",
            "fused_splitk_workspace": "5ccc4819cdfb",
        },
        "ba02feba7827": {
            "fused_splitk_ticket": "353be517b75a",
        },
        "7e1227456e6c": {
            "staged_triton": "73616a3e2302",
        },
        "208d32efabed": {
            "staged_splitk_ticket": "934f9db61936",
        },
        "b0a584ae1286": {
            "staged_hip": "8bde312829d5",
        },
        "a2b3baea899b": {
            "staged_ck": "580c078b14fc",
        },
        "095c5ce010d4": {
            "aiter_triton_a4w4": "ad306add2e9b",
            "aiter_triton_a16w4": "ad306add2e9b",
        },
        "740a83273624": {
            STUDY: "e83f849cf609",
        },
        # Pads along K count where indices of rounded A are said to fit 32 bits: another code for millions of rows only.
        "5ccc4819cdfb": {
            "fused": "41cb3343a639",
            "fused_splitk_atomic": "41cb3343a639",
            "fused_splitk_workspace": "41cb3343a639",
        },
        "353be517b75a": {
            "fused_splitk_ticket": "a8cd66c6dd5f",
        },
        "73616a3e2302": {
            "staged_triton": "af6ad881328d",
        },
        "934f9db61936": {
            "staged_splitk_ticket": "c835e60027e7",
        },
        "8bde312829d5": {
            "staged_hip": "36d84ad500fb",
        },
        "580c078b14fc": {
            "staged_ck": "392a21c84370",
        },
        "ad306add2e9b": {
            "aiter_triton_a4w4": "7b9fc7f67f24",
            "aiter_triton_a16w4": "7b9fc7f67f24",
        },
        "e83f849cf609": {
            STUDY: "a0fa434da33d",
        },
    }
)


@cache
def source_hash(names: tuple[str, ...]) -> str:
    """First 12 hexadecimal digits of SHA-256 over sources of ``kernels`` that this process runs."""
    digest = hashlib.sha256()
    for name in sorted(set(names)):
        text = files("kernels").joinpath(name).read_bytes().decode().replace("\r\n", "\n")
        content = (_syntax(ast.parse(text)) if name.endswith(".py") else text).encode()
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:HEX_DIGITS]


def settled(recorded: str, family: str) -> str:
    """The hash under which the sources that a row or a trial of ``family`` names are known now.

    Args:
        recorded: Hash of a row, a trial or, for :data:`STUDY`, of a study's name.
        family: Name of the family, or :data:`STUDY`.
    """
    while (now := REARRANGED.get(recorded, {}).get(family)) is not None:
        recorded = now
    return recorded


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
