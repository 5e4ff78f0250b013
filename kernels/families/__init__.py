"""The kernel families. A new one is a file of this folder and a line of the list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernels.families.aiter import AITER
from kernels.families.aiter_triton import AITER_TRITON_A4W4, AITER_TRITON_A16W4
from kernels.families.family import Family
from kernels.families.fused import FUSED, FUSED_SPLITK_ATOMIC, FUSED_SPLITK_WORKSPACE
from kernels.families.fused_splitk_ticket import FUSED_SPLITK_TICKET
from kernels.families.sources import source_hash
from kernels.families.staged_ck import STAGED_CK
from kernels.families.staged_hip import STAGED_HIP
from kernels.families.staged_splitk_ticket import STAGED_SPLITK_TICKET
from kernels.families.staged_triton import STAGED_TRITON

FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (
        FUSED,
        FUSED_SPLITK_ATOMIC,
        FUSED_SPLITK_WORKSPACE,
        FUSED_SPLITK_TICKET,
        STAGED_TRITON,
        STAGED_SPLITK_TICKET,
        STAGED_HIP,
        STAGED_CK,
        AITER_TRITON_A4W4,
        AITER_TRITON_A16W4,
        AITER,
    )
}


def study_hash() -> str:
    """Of the sources of every family: part of a study's name."""
    return source_hash(tuple(name for family in FAMILIES.values() for name in family.files))


def triton_functions() -> tuple[Any, ...]:
    """Every ``triton.jit`` kernel that a family may launch, in the order of the list."""
    stages = (stage for family in FAMILIES.values() for stage in family.stages(family.config_type()))
    return tuple(dict.fromkeys(function for stage in stages for function in stage.FUNCTIONS))
