"""A configuration as its row will serve it: at other M than its own, and on an A whose rows are apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kernels.device import GFX950
from kernels.errors import WrongResultError
from kernels.families import FAMILIES
from kernels.launches.program import Program
from kernels.problem import GemmShape
from search.evaluation import Candidate
from search.gate.check import check_program, load_calls
from search.gfx950.code.calls import CompiledCall

GAP = 80  # elements between the rows of a strided A: the code is that of multiples of 16, no row begins at one of 32
Compile = Callable[[Program], Sequence[CompiledCall]]


@dataclass(frozen=True)
class Serving:
    """One way in which a configuration is used beside that in which it was found.

    Args:
        M: Rows of A.
        stride_am: Elements from one row to the next; None: K.
    """

    M: int
    stride_am: int | None = None

    def __str__(self) -> str:
        """For messages."""
        return f"at M = {self.M}" if self.stride_am is None else f"with rows of A {self.stride_am} elements apart"


def servings(shape: GemmShape, lowest_M: int, greatest_M: int) -> tuple[Serving, ...]:
    """What a row of ``shape`` that serves these M must also be right for.

    M - 1 is no multiple of any tile that divides M, so that masks which the row's own M never needs are needed.
    """
    others = {M for M in (lowest_M, shape.M - 1, greatest_M) if lowest_M <= M <= greatest_M} - {shape.M}
    return (*map(Serving, sorted(others)), Serving(shape.M, shape.K + GAP))


@dataclass(frozen=True)
class ServedCandidate(Candidate):
    """A candidate that is to be right wherever its row serves it.

    Args:
        lowest_M: That the row serves.
        greatest_M: That the row serves.
    """

    lowest_M: int
    greatest_M: int


def check_served(candidate: ServedCandidate, compiled: Compile) -> None:
    """Execute a candidate, which is right at its own shape, in every way of :func:`servings`.

    Args:
        compiled: Compiles a program; M and the stride are run-time arguments, so mostly from disk.

    Raises:
        WrongResultError: It is wrong in one of them; the message says in which.
        KernelError: As :func:`~search.gate.check.check_program`.
    """
    for serving in servings(candidate.shape, candidate.lowest_M, candidate.greatest_M):
        used = replace(candidate.shape, M=serving.M)
        if candidate.config.check(used, GFX950) is not None:
            continue  # a row is passed over where its configuration is illegal
        program = FAMILIES[candidate.family].program(used, candidate.config, serving.stride_am)
        try:
            check_program(program, load_calls(compiled(program)), used, stride_am=serving.stride_am)
        except WrongResultError as error:
            raise WrongResultError(f"{serving}: {error}") from error
