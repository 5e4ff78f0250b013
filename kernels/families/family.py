"""A kernel family: its name, its knobs, and the stages of its program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, get_type_hints

from kernels.config import KernelConfig
from kernels.families.sources import TRITON_SOURCES, settled, source_hash
from kernels.families.stages import Stage, compose
from kernels.launches.program import Program
from kernels.problem import GemmShape


@dataclass(frozen=True)
class Family:
    """One way to compute the product.

    Args:
        name: Word used in tables, spaces, studies and results.
        stages: What its program is composed of, from a configuration or from columns of them.
        deterministic: False where the order of the sum may differ between runs, whatever the configuration.
        sources: Files of this package that decide what runs, beside the one that holds ``stages``.
        ordinary_only: As of its programs: then it is a baseline, searched where it is named and never exported.
    """

    name: str
    config_type: type[KernelConfig]
    stages: Callable[[Any], tuple[Stage, ...]]
    deterministic: bool
    summary: str
    sources: tuple[str, ...] = TRITON_SOURCES
    ordinary_only: bool = False

    @property
    def source_hash(self) -> str:
        """Of the family's sources: a row or a trial that holds another one was made by other kernels."""
        return source_hash(self.files)

    @property
    def files(self) -> tuple[str, ...]:
        """The sources, relative to this package."""
        return (*self.sources, "/".join(self.stages.__module__.split(".")[1:]) + ".py")

    def made(self, recorded: str | None) -> bool:
        """Whether today's kernels made what holds the source hash ``recorded``."""
        return recorded is not None and settled(recorded, self.name) == self.source_hash

    def is_deterministic(self, config: KernelConfig) -> bool:
        """Whether ``config`` gives the same bits in every run."""
        return self.deterministic and config.repeatable

    @cached_property
    def knobs(self) -> Mapping[str, Any]:
        """Type of each knob: ``int``, or a ``Literal`` of its words."""
        hints = get_type_hints(self.config_type)
        return {knob.name: hints[knob.name] for knob in fields(self.config_type)}

    def config(self, values: Mapping[str, Any]) -> KernelConfig:
        """Configuration from field values.

        Raises:
            TypeError: A field is missing a default and not given, or is unknown.
        """
        return self.config_type(**values)

    def program(self, shape: GemmShape, config: KernelConfig, stride_am: int | None = None) -> Program:
        """Buffers and launches of ``config`` at ``shape``.

        Args:
            stride_am: Elements between rows of A; default ``shape.K``.
        """
        program = compose(self.stages(config), shape, shape.K if stride_am is None else stride_am)
        return replace(program, ordinary_only=self.ordinary_only)

    def launched(self, config: KernelConfig) -> tuple[Stage, ...]:
        """The stages that ``config`` has."""
        return tuple(stage for stage in self.stages(config) if stage.when)

    @property
    def is_triton(self) -> bool:
        """Whether Triton makes every kernel of its default configuration."""
        return all(stage.FUNCTIONS for stage in self.launched(self.config_type()))
