"""The kernel families: name, configuration type, and the program that a configuration becomes at a shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kernels.config import KernelConfig
from kernels.families.aiter import AiterConfig, aiter
from kernels.families.fused import (
    SplitKAtomicConfig,
    SplitKWorkspaceConfig,
    TileConfig,
    fused,
    fused_splitk_atomic,
    fused_splitk_workspace,
)
from kernels.families.sources import CODE_OBJECT_SOURCES, HIP_SOURCES, TRITON_SOURCES, settled, source_hash
from kernels.families.staged_ck import StagedCkConfig, staged_ck
from kernels.families.staged_hip import StagedHipConfig, staged_hip
from kernels.families.staged_triton import StagedConfig, staged_triton
from kernels.launches.program import Program
from kernels.problem import GemmShape


@dataclass(frozen=True)
class Family:
    """One way to compute the product.

    Args:
        name: Word used in tables, spaces, studies and results.
        config_type: Its knobs.
        build: Program of (shape, configuration, row stride of A in elements).
        deterministic: False where the order of the sum may differ between runs, whatever the configuration.
        summary: One line for the user.
        sources: Files of this package that decide what runs, beside the one that holds ``build``.
    """

    name: str
    config_type: type[KernelConfig]
    build: Callable[[GemmShape, Any, int], Program]
    deterministic: bool
    summary: str
    sources: tuple[str, ...] = TRITON_SOURCES

    @property
    def source_hash(self) -> str:
        """Of the family's sources: a row or a trial that holds another one was made by other kernels."""
        return source_hash(self.files)

    @property
    def files(self) -> tuple[str, ...]:
        """The sources, relative to this package."""
        return (*self.sources, "/".join(self.build.__module__.split(".")[1:]) + ".py")

    def made(self, recorded: str | None) -> bool:
        """Whether today's kernels made what holds the source hash ``recorded``."""
        return recorded is not None and settled(recorded, self.name) == self.source_hash

    def is_deterministic(self, config: KernelConfig) -> bool:
        """Whether ``config`` gives the same bits in every run."""
        return self.deterministic and config.repeatable

    def config(self, values: Mapping[str, Any]) -> KernelConfig:
        """Configuration from field values.

        Raises:
            TypeError: A field is missing a default and not given, or is unknown.
        """
        return self.config_type(**values)

    def program(self, shape: GemmShape, config: KernelConfig, stride_am: int | None = None) -> Program:
        """Buffers and launches of ``config`` at ``shape``.

        Args:
            shape: Problem.
            config: Knobs of this family's ``config_type``.
            stride_am: Elements between rows of A; default ``shape.K``.
        """
        return self.build(shape, config, shape.K if stride_am is None else stride_am)


FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (
        Family("fused", TileConfig, fused, True, "quantise and multiply in one kernel"),
        Family("fused_splitk_atomic", SplitKAtomicConfig, fused_splitk_atomic, False, "fused, K split, fp32 atomics"),
        Family("fused_splitk_workspace", SplitKWorkspaceConfig, fused_splitk_workspace, True,
               "fused, K split into slices, then a reduction"),
        Family("staged_triton", StagedConfig, staged_triton, True, "quantise kernel, then a packed GEMM"),
        Family("staged_hip", StagedHipConfig, staged_hip, True, "HIP quantise kernel, then a packed GEMM in HIP",
               HIP_SOURCES),
        Family("staged_ck", StagedCkConfig, staged_ck, True, "quantise kernel, then a code object of AITER",
               CODE_OBJECT_SOURCES),
        Family("aiter", AiterConfig, aiter, False, "AITER's own quantise kernel and GEMM, as a baseline", ()),
    )
}  # fmt: skip


def study_hash() -> str:
    """Of the sources of every family: part of a study's name."""
    return source_hash(tuple(name for family in FAMILIES.values() for name in family.files))
