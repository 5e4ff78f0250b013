"""Compile and simulate random legal configurations: does the gate pass what is right, and what does it refuse?

    python benchmarks/gate_campaign.py [--configurations 320] [--seed 0] [--kept gate_campaign.jsonl] [--jobs 1]

The configurations are spread evenly over the four families and the ten shapes of configs/shapes/gpumode.yaml. Each
answer is kept in the file as it comes, so that the same command goes on where it was stopped; its rows can be judged
again with --again OUTCOME. --spilling executes those too that are refused because they spill: the compiler's spill code
is code like any other.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kernels.device import GFX950
from kernels.disk import default_cache
from kernels.errors import InputError, KernelError
from kernels.families import FAMILIES
from kernels.families.fused import TileConfig
from kernels.problem import GemmShape
from search.evaluation import OUTCOMES, Candidate, Evaluation
from search.evaluators.offline import OfflineEvaluator
from search.gate.check import check_program, load_calls
from search.gfx950.code.artifacts import ArtifactCache
from search.gfx950.code.calls import compile_call
from search.space.available import available_spaces
from search.space.legal_set import legal_set
from search.space.shapes import load_shapes
from search.space.space import load_spaces
from search.terminal import TextTable, one_line_errors

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
SOFTWARE_SHARE = 8  # one configuration in so many takes the software quantiser, which no space of gfx950 proposes
KEPT_FACTS = ("check_s", "executed", "compile_s", "vgprs", "lds_bytes", "spills", "mfma", "cached")
Row = dict[str, Any]


def drawn(count: int, seed: int, shapes: Sequence[GemmShape]) -> Iterator[Candidate]:
    """About ``count`` different legal configurations, as many of each family at each shape."""
    spaces, _ = available_spaces(load_spaces(CONFIGS / "spaces"), None, GFX950, offline=True)
    each = -(-count // (len(spaces) * len(shapes)))
    for number, shape in enumerate(shapes):
        for place, (family, space) in enumerate(spaces.items()):
            try:
                legal = legal_set(space, shape, GFX950)
            except InputError:  # a family that cannot compute the shape
                continue
            rng = np.random.default_rng((seed, number, place))
            for index in rng.choice(len(legal), min(each, len(legal)), replace=False):
                config = legal.config(int(index))
                if rng.integers(SOFTWARE_SHARE) == 0 and isinstance(config, TileConfig):
                    software = replace(config, quantizer="software")
                    config = software if software.check(shape, GFX950) is None else config
                yield Candidate(shape, family, config)


def key_of(candidate: Candidate) -> str:
    """Text that names the candidate."""
    return f"{candidate.shape} {candidate.family} {json.dumps(candidate.config.to_dict())}"


def row_of(candidate: Candidate, done: Evaluation) -> Row:
    """What is kept of one answer."""
    facts = {name: done.facts[name] for name in KEPT_FACTS if name in done.facts}
    row = {"key": key_of(candidate), "family": candidate.family, "outcome": done.outcome, "reason": done.reason}
    return row | {"predicted_us": done.objective_us} | facts


def read_rows(path: Path, again: Iterable[str]) -> dict[str, Row]:
    """Rows of an earlier run by key, without those to judge again; the last row of a key counts."""
    lines = path.read_text().splitlines() if path.exists() else []
    rows = {row["key"]: row for row in map(json.loads, lines)}
    return {key: row for key, row in rows.items() if row["outcome"] not in set(again)}


def campaign(candidates: Sequence[Candidate], path: Path, jobs: int, known: Mapping[str, Row]) -> list[Row]:
    """Judge what is not known, keeping each answer at once."""
    todo = [candidate for candidate in candidates if key_of(candidate) not in known]
    evaluator = OfflineEvaluator(jobs=jobs)
    found = dict(known)
    start = time.monotonic()
    running: dict[Future[Evaluation], Candidate] = {}
    try:
        with path.open("a") as file:
            for number, candidate in enumerate(todo, start=1):
                running[evaluator.submit(candidate)] = candidate
                full = len(running) >= evaluator.capacity
                while running and (full or number == len(todo)):
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        row = row_of(running.pop(future), future.result())
                        found[row["key"]] = row
                        file.write(json.dumps(row) + "\n")
                        file.flush()
                    full = False
                if number % 20 == 0:
                    print(f"{number} of {len(todo)} in {time.monotonic() - start:.0f} s", flush=True)
    finally:
        evaluator.close()
    return [found[key_of(candidate)] for candidate in candidates]


def outcome_table(rows: Sequence[Row]) -> TextTable:
    """Configurations by family and outcome."""
    seen = [outcome for outcome in OUTCOMES if any(row["outcome"] == outcome for row in rows)]
    counts = Counter((row["family"], row["outcome"]) for row in rows)
    lines = [(family, *(str(counts[family, outcome]) for outcome in seen)) for family in FAMILIES]
    total = ("all", *(str(sum(row["outcome"] == outcome for row in rows)) for outcome in seen))
    return TextTable(("family", *seen), (*lines, total), frozenset(seen))


def print_reasons(rows: Sequence[Row]) -> None:
    """Every refusal, those that differ in numbers only together, with one example each."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row["outcome"] != "ok":
            groups[row["outcome"], re.sub(r"\d+", "#", row["reason"])[:90]].append(row)
    for (outcome, _), members in sorted(groups.items(), key=lambda group: -len(group[1])):
        print(f"{len(members):4} {outcome}: {members[0]['reason']}\n     e.g. {members[0]['key']}")


def print_speed(rows: Sequence[Row]) -> None:
    """Time of a check, and lane-instructions a second."""
    checked = [row for row in rows if row.get("check_s")]
    if not checked:
        return
    seconds = np.array([row["check_s"] for row in checked])
    lanes = np.array([row["executed"] * 64 for row in checked])
    print(f"check: median {np.median(seconds):.3f} s, 90 % within {np.quantile(seconds, 0.9):.3f} s, longest "
          f"{seconds.max():.2f} s; {lanes.sum() / seconds.sum() / 1e6:.2f} million lane-instructions a second "
          f"(median candidate {np.median(lanes / seconds) / 1e6:.2f})")  # fmt: skip
    compiled = np.array([row["compile_s"] for row in checked if not row["cached"]])
    if len(compiled):
        print(f"compilation: median {np.median(compiled):.2f} s of {len(compiled)} that were not on disk")


def execute_spilling(candidates: Sequence[Candidate], rows: Sequence[Row]) -> None:
    """Execute what was refused for spilling, and print what comes out."""
    outcomes: Counter[str] = Counter()
    logs = Path(tempfile.mkdtemp())
    for candidate, row in zip(candidates, rows, strict=True):
        if " spills " not in row["reason"]:
            continue
        program = FAMILIES[candidate.family].program(candidate.shape, candidate.config)
        try:
            compiled = [compile_call(program, call, ArtifactCache(default_cache()), logs) for call in program.calls]
            check_program(program, load_calls(compiled), candidate.shape)
            outcomes["right"] += 1
        except KernelError as error:
            outcomes[error.outcome] += 1
            print(f"  {error.outcome}: {error}\n     e.g. {row['key']}", flush=True)
    shutil.rmtree(logs)
    print(f"executed although they spill: {dict(outcomes)}")


def main() -> None:
    """Judge and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configurations", type=int, default=320)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kept", type=Path, default=Path("gate_campaign.jsonl"), help="file of the answers")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--again", action="append", default=[], metavar="OUTCOME", help="judge these rows again")
    parser.add_argument("--spilling", action="store_true", help="execute spilling kernels too")
    parser.add_argument("--shapes", type=Path, default=CONFIGS / "shapes" / "gpumode.yaml")
    arguments = parser.parse_args()
    shapes = load_shapes(arguments.shapes).shapes
    candidates = list(dict.fromkeys(drawn(arguments.configurations, arguments.seed, shapes)))
    known = read_rows(arguments.kept, arguments.again)
    rows = campaign(candidates, arguments.kept, arguments.jobs, known)
    print(outcome_table(rows).plain())
    print_reasons(rows)
    print_speed(rows)
    if arguments.spilling:
        execute_spilling(candidates, rows)


if __name__ == "__main__":
    with one_line_errors():
        main()
