"""Does the gate catch a wrong instruction? Mutates correct kernels, one instruction at a time, and counts.

    python benchmarks/gate_mutations.py [--each 1.0] [--seed 0] [--sources]

With --sources the mistakes of benchmarks/source_mutations.py, each compiled from a changed copy of the kernels or from
a changed launch; one that only the check of a finalist finds (other M, strided A) counts as caught there.

Without it, the subjects are the four families at their default configuration, at a shape with tails of M and K. A
mutant that the assembler refuses (where llvm-mc is found) is no program, and does not count. A survivor is classified
by executing the original again with the changed instruction observed:

    not executed     no executed workgroup reaches it
    same values      it writes the same bits to the same registers in every lane of every wave
    unused           the bits that it writes differently reach no store, address, branch or MFMA
    wait covered     without this wait nothing was read too early: another wait, or none, was needed
    other            printed, to be looked at
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from assembly_mutations import KINDS, Mutation, mutations
from source_mutations import LAUNCH_MUTATIONS, SOURCE_MUTATIONS, MutatedSources, SourceMutation, mutated_launch

from kernels.disk import default_cache
from kernels.errors import KernelError, WrongResultError
from kernels.families import FAMILIES
from kernels.launches.program import Program
from kernels.problem import GemmShape
from kernels.rocm.toolchain import ToolNotFoundError, find_tool
from search.gate.check import SimulatedCall, check_program, load_calls
from search.gate.served import ServedCandidate, check_served
from search.gfx950.code.artifacts import ArtifactCache
from search.gfx950.code.calls import CompiledCall, compile_call
from search.gfx950.simulator import SimulationError, load_assembly
from search.gfx950.simulator.state.findings import SimulatorLimitError
from search.gfx950.simulator.state.registers import CONSTANT, SCC
from search.terminal import TextTable, one_line_errors

SHAPE = GemmShape(31, 128, 1088)  # tails of M and K, five steps along K; every workgroup is executed
KNOBS: dict[str, dict[str, int | str]] = {
    "fused": {}, "fused_splitk_atomic": {"split_k": 2}, "fused_splitk_workspace": {"split_k": 2},
    "staged_triton": {"split_k": 2},
}  # fmt: skip
WANTED = {
    "wrong register": 24, "wrong offset": 8, "changed constant": 14, "swapped operands": 12, "dropped wait": 10,
    "dropped barrier": 4,
}  # fmt: skip
Trace = list[dict[int, Any]]  # rows of the registers written, execution by execution
BUDGET = 20_000  # instructions of a wave; the longest subject executes about 1,000


@dataclass(frozen=True)
class Subject:
    """A correct program, compiled."""

    family: str
    program: Program
    compiled: list[CompiledCall]
    calls: list[SimulatedCall]


@dataclass(frozen=True)
class Result:
    """What became of one mutant; ``why`` says how it was caught, or why it survived."""

    subject: Subject
    call: int
    mutation: Mutation
    caught: bool
    why: str


def subject(family: str) -> Subject:
    """The family at its default configuration."""
    program = FAMILIES[family].program(SHAPE, FAMILIES[family].config(KNOBS[family]))
    compiled = [compile_call(program, call, ArtifactCache(default_cache()), Path(".")) for call in program.calls]
    calls = [
        SimulatedCall(one.call, load_assembly(one.kernel.assembly), one.kernel.num_warps, one.kernel.lds_bytes)
        for one in compiled
    ]
    check_program(program, calls, SHAPE, BUDGET)
    return Subject(family, program, compiled, calls)


def drawn(one: Subject, each: float, random: Random) -> Iterator[tuple[int, Mutation]]:
    """Mutations of every kind, over all launches of the program: more of a longer kernel."""
    for kind, wanted in WANTED.items():
        pool = [
            (place, mutation)
            for place, call in enumerate(one.compiled)
            for mutation in mutations(call.kernel.assembly, kind, random)
        ]
        random.shuffle(pool)
        taken = 0
        for place, mutation in pool:
            if taken >= wanted * each:
                break
            if assembles(mutation.after):
                taken += 1
                yield place, mutation


@cache
def assembler() -> Path | None:
    """llvm-mc, if there is one."""
    try:
        return find_tool("llvm-mc")
    except ToolNotFoundError:
        return None


def assembles(instruction: str) -> bool:
    """Whether the assembler takes the instruction; True where there is no assembler."""
    tool = assembler()
    if tool is None:
        return True
    command = [str(tool), "-triple=amdgcn-amd-amdhsa", "-mcpu=gfx950", "-filetype=null"]
    return subprocess.run(command, input=instruction, capture_output=True, text=True, check=False).returncode == 0


def judged(one: Subject, place: int, mutation: Mutation) -> Result | None:
    """Run a mutant through the gate; None where the simulator does not model what became of it."""
    text = mutation.apply(one.compiled[place].kernel.assembly)
    try:
        mutant = replace(one.calls[place], kernel=load_assembly(text))
    except SimulationError:
        return None
    calls = [*one.calls[:place], mutant, *one.calls[place + 1 :]]
    try:
        check_program(one.program, calls, SHAPE, BUDGET)
    except WrongResultError as error:
        return Result(one, place, mutation, True, str(error))
    except SimulatorLimitError:
        return None
    return Result(one, place, mutation, False, classify(one, place, mutation, mutant))


def classify(one: Subject, place: int, mutation: Mutation, mutant: SimulatedCall) -> str:
    """Why a mutant may have survived."""
    index, original = mutation.index, one.calls[place]
    written = {
        register
        for call in (original, mutant)
        for register in call.kernel.program.instructions[index].writes
        if register < CONSTANT or register == SCC
    }
    before, after = (observed(one, place, call, index, written) for call in (original, mutant))
    if not before:
        return "not executed"
    if mutation.kind == "dropped wait":
        return "wait covered"
    if written and _equal(before, after):
        return "same values"
    return "unused" if written and not reach_an_effect(one, place, mutation, before, after) else "other"


def observed(one: Subject, place: int, call: SimulatedCall, index: int, registers: set[int]) -> Trace:
    """What ``registers`` hold after the instruction, execution by execution."""
    trace: Trace = []

    def look(g: Any) -> None:
        trace.append({r: (g.scc if r == SCC else g.u[r]).copy() for r in registers})

    _run_watched(one, place, call, index, look)
    return trace


def reach_an_effect(one: Subject, place: int, mutation: Mutation, before: Trace, after: Trace) -> bool:
    """Whether the simulator finds a use of the bits that differ, if these count as undefined in the original."""
    if len(before) != len(after):
        return True
    pairs = iter(zip(before, after, strict=True))

    def forget(g: Any) -> None:
        old, new = next(pairs)
        for register in old:
            bits = np.full((1, 1), 0xFFFFFFFF, np.uint32)
            if old[register].shape == new[register].shape:
                changed = old[register] ^ new[register]
                bits = np.where(changed, bits, 0).astype(np.uint32) if register == SCC else changed
            undefined = g.tracking.undefined.get(register, np.zeros((1, 1), np.uint32))
            g.tracking.set_undefined(register, undefined | bits)

    # A no-op behind the instruction is where the bits are forgotten: the simulator has settled its result by then.
    lines = one.compiled[place].kernel.assembly.split("\n")
    lines.insert(mutation.line, "\ts_nop 0")
    call = replace(one.calls[place], kernel=load_assembly("\n".join(lines)))
    return _run_watched(one, place, call, mutation.index + 1, forget) is not None


def _run_watched(one: Subject, place: int, call: SimulatedCall, index: int, watch: Callable[[Any], None]) -> str | None:
    """Run with ``watch`` after each execution of an instruction; what the gate finds."""
    instruction = call.kernel.program.instructions[index]
    run = instruction.run

    def watched(g: Any) -> None:
        run(g)
        watch(g)

    instruction.run = watched
    try:
        check_program(one.program, [*one.calls[:place], call, *one.calls[place + 1 :]], SHAPE, BUDGET)
    except WrongResultError as error:
        return str(error)
    finally:
        instruction.run = run
    return None


def _equal(before: Trace, after: Trace) -> bool:
    return len(before) == len(after) and all(
        x.keys() == y.keys() and all(np.array_equal(x[register], y[register]) for register in x)
        for x, y in zip(before, after, strict=True)
    )


def report(results: list[Result]) -> None:
    """Counts by kind, how the caught ones were caught, and every survivor."""
    reasons = sorted({result.why for result in results if not result.caught})
    header = ("kind", "mutants", "caught", *reasons)
    lines = [_line(kind, [r for r in results if r.mutation.kind == kind], reasons) for kind in KINDS]
    lines.append(_line("all", results, reasons))
    print(TextTable(header, tuple(lines), frozenset(header[1:])).plain())
    for family in KNOBS:
        print(" ".join(_line(family, [r for r in results if r.subject.family == family], ())))
    print("caught by:", dict(Counter(_finding(result.why) for result in results if result.caught).most_common()))
    for result in results:
        if not result.caught:
            name, mutation = result.subject.compiled[result.call].call.name, result.mutation
            print(f"{result.why}: {result.subject.family} {name} line {mutation.line}, {mutation.kind}: "
                  f"{mutation.before}  ->  {mutation.after}")  # fmt: skip


def _line(name: str, results: list[Result], reasons: Iterator[str] | list[str] | tuple[()]) -> tuple[str, ...]:
    why: Mapping[str, int] = Counter(result.why for result in results if not result.caught)
    caught = sum(result.caught for result in results)
    return (name, str(len(results)), str(caught), *(str(why.get(reason, 0)) for reason in reasons))


def _finding(why: str) -> str:
    _, _, finding = why.partition("kernel: ")
    return finding.partition(":")[0] if finding else "result"


def judged_source(mutation: SourceMutation, number: int, cache: ArtifactCache) -> tuple[str, str]:
    """(where it was caught: check, finalist, or nowhere; the message)."""
    sources = MutatedSources(mutation, number, cache)
    config = FAMILIES[mutation.family].config(mutation.knobs)
    program = FAMILIES[mutation.family].program(mutation.shape, config)
    where = "check"
    try:
        check_program(program, load_calls(sources.compiled(program)), mutation.shape)
        where = "finalist"
        M = mutation.shape.M
        check_served(ServedCandidate(mutation.shape, mutation.family, config, max(1, M - 8), M), sources.compiled)
    except KernelError as error:
        return (where if isinstance(error, WrongResultError) else error.outcome), str(error)
    finally:
        sources.close()
    return "nowhere", ""


def mutate_sources() -> None:
    """Judge every mistake of the sources and of the launches, and print where it was caught."""
    caught: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        cache = ArtifactCache(Path(folder))
        for number, mutation in enumerate(SOURCE_MUTATIONS):
            where, why = judged_source(mutation, number, cache)
            caught[where] += 1
            print(f"{where:9} {mutation.family}, {mutation.name}: {why[:100]}", flush=True)
        for launch in LAUNCH_MUTATIONS:
            program = mutated_launch(launch)
            where, why = "nowhere", ""
            try:
                compiled = [compile_call(program, call, cache, Path(folder)) for call in program.calls]
                check_program(program, load_calls(compiled), launch.shape)
            except KernelError as error:
                where, why = ("check" if isinstance(error, WrongResultError) else error.outcome), str(error)
            caught[where] += 1
            print(f"{where:9} {launch.family}, {launch.name}: {why[:100]}", flush=True)
    total = sum(caught.values())
    right = caught["check"] + caught["finalist"]
    print(f"{right} of {total} caught ({right / total:.1%}): {dict(caught)}")


def main() -> None:
    """Mutate and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=float, default=1.0, help="times the usual number of mutants (about 280)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sources", action="store_true", help="mistakes in the sources and launches instead")
    arguments = parser.parse_args()
    if arguments.sources:
        mutate_sources()
        return
    start = time.monotonic()
    results: list[Result] = []
    for number, family in enumerate(KNOBS):
        one, random = subject(family), Random(1000 * arguments.seed + number)
        for place, mutation in drawn(one, arguments.each, random):
            result = judged(one, place, mutation)
            if result is not None:
                results.append(result)
        print(f"{family}: {len(results)} mutants so far, {time.monotonic() - start:.0f} s", flush=True)
    report(results)


if __name__ == "__main__":
    with one_line_errors():
        main()
