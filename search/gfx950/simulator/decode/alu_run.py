"""Builds the function that executes a SALU or VALU instruction: modifier steps, EXEC, scratch results.

With EXEC full and no modifier on the result, the semantics write the destination themselves. Otherwise they write
scratch rows, which are then copied to the lanes that are active.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from search.gfx950.simulator.decode.modifiers import LanePattern, Step, dpp_lanes
from search.gfx950.simulator.decode.op import WIDTHS, Op
from search.gfx950.simulator.state.findings import UnknownInstructionError
from search.gfx950.simulator.state.registers import CONSTANT, RESULT_SCRATCH, SCRATCH
from search.gfx950.simulator.state.state import WaveGroup


@dataclass
class AluPlan:
    """A vector instruction while it is being bound."""

    op: Op
    dst: list[int]
    src: list[int]
    reads: set[int]
    before: list[Step] = field(default_factory=list)
    after: list[Step] = field(default_factory=list)
    pattern: LanePattern | None = None
    preserve: int = 0
    keywords: dict[str, Any] = field(default_factory=dict)
    halves: tuple[set[int], set[int]] = field(default_factory=lambda: (set(), set()))


def registers_of(index: int, kind: str) -> range:
    """Registers of an operand of type ``kind``; none for a constant."""
    return range(index, index + WIDTHS[kind]) if index < CONSTANT else range(0)


def plain_run(plan: AluPlan) -> Callable[[WaveGroup], None]:
    """Run function of an instruction without a vector result.

    Raises:
        UnknownInstructionError: A modifier that needs a vector result.
    """
    semantics, arguments = plan.op.semantics, (*plan.dst, *plan.src)
    before = tuple(step.run for step in plan.before)
    keywords = plan.keywords
    if plan.after or keywords or (plan.pattern is not None and not plan.pattern.enabled.all()):
        raise UnknownInstructionError("modifier on an instruction without a vector result")
    if not before:
        return lambda g: semantics(g, *arguments)

    def run(g: WaveGroup) -> None:
        for step in before:
            step(g)
        semantics(g, *arguments)

    return run


def _scratch_results(plan: AluPlan) -> tuple[list[int], list[tuple[int, int]]]:
    scratch, rows, free = [], [], RESULT_SCRATCH
    for index, kind in zip(plan.dst, plan.op.dst, strict=True):
        if index >= SCRATCH:
            scratch.append(index)
            continue
        scratch.append(free)
        rows += [(register, free + offset) for offset, register in enumerate(registers_of(index, kind))]
        free += WIDTHS[kind]
    return scratch, rows


def vector_run(plan: AluPlan) -> Callable[[WaveGroup], None]:
    """Run function of an instruction with a vector result."""
    semantics, keywords = plan.op.semantics, plan.keywords
    direct, before = (*plan.dst, *plan.src), tuple(step.run for step in plan.before)
    if plan.op.ignores_exec:
        return lambda g: semantics(g, *direct, **keywords)
    redirect = _redirected(plan)
    always_redirect = bool(plan.after) or plan.pattern is not None
    if not before and not always_redirect and not keywords:
        return _fast_run(semantics, direct, redirect)

    def run(g: WaveGroup) -> None:
        for step in before:
            step(g)
        if g.full and not always_redirect:
            semantics(g, *direct, **keywords)
        else:
            redirect(g)

    return run


def _redirected(plan: AluPlan) -> Callable[[WaveGroup], None]:
    """The instruction with its result in scratch rows, then copied to the lanes that are written."""
    semantics, keywords, pattern = plan.op.semantics, plan.keywords, plan.pattern
    after = tuple(step.run for step in plan.after)
    scratch, rows = _scratch_results(plan)
    arguments = (*scratch, *plan.src)
    keep_old = bool(plan.preserve) and not after

    def run(g: WaveGroup) -> None:
        if keep_old:
            for row, temporary in rows:
                g.u[temporary][...] = g.u[row]
        semantics(g, *arguments, **keywords)
        for step in after:
            step(g)
        lanes = g.mask if pattern is None else g.mask & dpp_lanes(pattern, g)[1]
        for row, temporary in rows:
            np.copyto(g.u[row], g.u[temporary], where=lanes)

    return run


def _fast_run(
    semantics: Callable[..., None], direct: tuple[int, ...], redirect: Callable[[WaveGroup], None]
) -> Callable[[WaveGroup], None]:
    """The common case without modifiers; fixed argument counts save a tuple unpacking each time."""
    if len(direct) == 2:
        d, a = direct

        def unary(g: WaveGroup) -> None:
            if g.full:
                semantics(g, d, a)
            else:
                redirect(g)

        return unary
    if len(direct) == 3:
        d, a, b = direct

        def binary(g: WaveGroup) -> None:
            if g.full:
                semantics(g, d, a, b)
            else:
                redirect(g)

        return binary

    def run(g: WaveGroup) -> None:
        if g.full:
            semantics(g, *direct)
        else:
            redirect(g)

    return run
