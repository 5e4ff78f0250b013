"""A configuration as its row will serve it: at other M than its own, and on an A whose rows are apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from kernels.device import GFX950, DeviceKey
from kernels.errors import WrongResultError
from kernels.families import FAMILIES
from kernels.launches.program import Program
from kernels.problem import GemmShape
from search.evaluation import Candidate, ServedCandidate
from search.gate.check import check_program, load_calls
from search.gfx950.code.calls import CompiledCall

# Elements between the rows of a strided A: at multiples of 16, for which there is code of its own, but not of 32; and
# where no row but the first is aligned to more than an element.
GAPS = (80, 81)
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
    return (*map(Serving, sorted(others)), *(Serving(shape.M, shape.K + gap) for gap in GAPS))


def served_M(candidate: Candidate) -> tuple[int, int]:
    """The least and the greatest M that a row of ``candidate`` serves; its own where nothing else is said."""
    if isinstance(candidate, ServedCandidate):
        return candidate.lowest_M, candidate.greatest_M
    return candidate.shape.M, candidate.shape.M


def ways(candidate: Candidate, device: DeviceKey) -> Iterator[Serving]:
    """The :func:`servings` of ``candidate`` beside its own; a row is passed over where its configuration is illegal."""
    if isinstance(candidate, ServedCandidate):
        for serving in servings(candidate.shape, *served_M(candidate)):
            if candidate.config.check(replace(candidate.shape, M=serving.M), device) is None:
                yield serving


def check_served(candidate: Candidate, compiled: Compile, device: DeviceKey = GFX950) -> None:
    """Execute a candidate, which is right at its own shape, in every way of :func:`servings`.

    Args:
        compiled: Compiles a program; M and the stride are run-time arguments, so mostly from disk.

    Raises:
        WrongResultError: It is wrong in one of them; the message says in which.
        KernelError: As :func:`~search.gate.check.check_program`.
    """
    for serving in ways(candidate, device):
        used = replace(candidate.shape, M=serving.M)
        program = FAMILIES[candidate.family].program(used, candidate.config, serving.stride_am)
        try:
            check_program(program, load_calls(compiled(program)), used, stride_am=serving.stride_am, every_order=True)
        except WrongResultError as error:
            raise WrongResultError(f"{serving}: {error}") from error
