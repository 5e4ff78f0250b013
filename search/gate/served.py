"""A configuration as its row will serve it: at other M than its own, and on an A whose rows are apart.

What a search samples, a row is looked at for: each step along K, and each tile of C where that is affordable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from kernels.device import GFX950, DeviceKey
from kernels.errors import WrongResultError
from kernels.families import FAMILIES
from kernels.launches.program import Program
from kernels.problem import GemmShape
from search.evaluation import Candidate, ServedCandidate
from search.gate.check import SimulatedCall, check_every_step, check_every_tile, check_program, load_calls
from search.gate.regions import multiplications
from search.gate.tolerance import MATRIX_K
from search.gfx950.code.calls import CompiledCall

# Elements between the rows of a strided A: at multiples of 16, for which there is code of its own, but not of 32; and
# where no row but the first is aligned to more than an element.
GAPS = (80, 81)
AFFORDABLE = 2e9  # multiplications of all tiles: 2 to 4 s
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
    """Execute a candidate, which is right at its own shape, in every way of :func:`servings`, and closely in two.

    Args:
        compiled: Compiles a program; M and the stride are run-time arguments, so mostly from disk.

    Raises:
        WrongResultError: It is wrong in one of them; the message says in which.
        KernelError: As :func:`~search.gate.check.check_program`.
    """
    for serving in ways(candidate, device):
        program, calls, used = _loaded(candidate, serving, compiled)
        with named(serving):
            check_program(program, calls, used, stride_am=serving.stride_am, every_order=True)
    if isinstance(candidate, ServedCandidate):
        _check_closely(candidate, compiled, device)


def _check_closely(candidate: ServedCandidate, compiled: Compile, device: DeviceKey) -> None:
    """Each step along K at the least M, and each tile at the greatest M at which that is affordable."""
    others = [one.M for one in ways(candidate, device) if one.stride_am is None]
    least, *more = sorted({candidate.shape.M, *others})
    with named(Serving(least)):
        check_every_step(*_loaded(candidate, Serving(least), compiled), step_of(candidate))
    most = max([M for M in more if _multiplications(candidate, M) <= AFFORDABLE], default=least)
    with named(Serving(most)):
        check_every_tile(*_loaded(candidate, Serving(most), compiled), AFFORDABLE)


def step_of(candidate: Candidate) -> int:
    """Columns of K of a step of the kernel."""
    return min(int(candidate.config.to_dict().get("BLOCK_K", MATRIX_K)), candidate.shape.K)


def _multiplications(candidate: Candidate, M: int) -> float:
    used = replace(candidate.shape, M=M)
    return multiplications(FAMILIES[candidate.family].program(used, candidate.config), used)


def _loaded(
    candidate: Candidate, serving: Serving, compiled: Compile
) -> tuple[Program, list[SimulatedCall], GemmShape]:
    used = replace(candidate.shape, M=serving.M)
    program = FAMILIES[candidate.family].program(used, candidate.config, serving.stride_am)
    return program, load_calls(compiled(program)), used


@contextmanager
def named(serving: Serving) -> Iterator[None]:
    """Say in what way it is wrong."""
    try:
        yield
    except WrongResultError as error:
        raise WrongResultError(f"{serving}: {error}") from error
