"""Serve trials from a recorded sweep, so that samplers can be compared on any machine, at the speed of a look-up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from kernels.config import KernelConfig
from kernels.device import DeviceKey
from kernels.errors import InputError
from kernels.problem import GemmShape
from kernels.tables.rows import Evidence
from search.evaluation import TIMED, Candidate, Evaluation, Outcome, Point, Value
from search.evaluators import Evaluator
from search.results import load
from search.results.columns import Role, facts_without
from search.results.studies import PROTOCOL, STUDIES_FILE
from search.results.winners import config_of
from search.space.space import SearchSpace

PREFIX = "replay:"
FACTS = facts_without(Role.rate, Role.build, Role.run)  # the others are made by the replay
Row = Mapping[Any, Any]


def is_replay(target: str) -> bool:
    """Whether ``target`` names a recorded sweep."""
    return target.startswith(PREFIX)


class RecordedPoints:
    """The recorded configurations of one family at one shape, as the points that a search may choose from."""

    def __init__(self, configs: Sequence[KernelConfig]) -> None:
        self.configs = tuple(configs)
        self.frame = pd.DataFrame([config.to_dict() for config in configs])
        self._index = {config: index for index, config in enumerate(configs)}

    def __len__(self) -> int:
        return len(self.configs)

    def config(self, index: int) -> KernelConfig:
        """Configuration of point ``index``."""
        return self.configs[index]

    def index_of(self, config: KernelConfig) -> int | None:
        """Its point, or None if it was not recorded."""
        return self._index.get(config)


def named_points(points: Iterable[Point], shape: GemmShape, device: DeviceKey) -> dict[str, RecordedPoints]:
    """``points`` by family, as what a search may choose from.

    Raises:
        InputError: There is none, or one is not legal at ``shape`` on ``device``.
    """
    found: dict[str, list[KernelConfig]] = {}
    for family, config in dict.fromkeys(points):
        refusal = config.check(shape, device)
        if refusal is not None:
            raise InputError(f"{shape}: {family} {config}: {refusal}; take it out of the list")
        found.setdefault(family, []).append(config)
    if not found:
        raise InputError(f"{shape}: the list of --only has no candidate of this shape; name one of its shapes")
    return {family: RecordedPoints(configs) for family, configs in found.items()}


class ReplayEvaluator(Evaluator):
    """Answers with what was recorded; a candidate that was not recorded is ``illegal``.

    Args:
        path: Results file, folder or storage of one device.

    Raises:
        InputError: No results there, or those of several devices.
    """

    def __init__(self, path: Path) -> None:
        file = path / STUDIES_FILE if path.is_dir() else path
        if not file.exists():
            cure = "name a results file, for example one of results/recorded, or the folder of a sweep's results"
            raise InputError(f"--target {PREFIX}{path}: {file}: no such file; {cure}")
        frame = load(path)
        devices = sorted({(str(arch), int(cus)) for arch, cus in zip(frame["arch"], frame["cu_count"], strict=True)})
        if len(devices) != 1:
            raise InputError(f"{path}: holds results of {len(devices)} devices; write those of one with inspect --to")
        self.device = DeviceKey(*devices[0])
        self.capacity = 1
        self._frame = frame
        protocols = sorted({str(name) for name in frame["protocol"].dropna()})
        self.protocol = PROTOCOL + ("+".join(protocols) or "v1")

    @cached_property
    def _rows(self) -> dict[Candidate, Row]:
        """By what was judged; the first of several stands, as it was before its finals."""
        rows: dict[Candidate, Row] = {}
        for row in self._frame.to_dict("records"):
            shape = GemmShape(int(row["M"]), int(row["N"]), int(row["K"]))
            rows.setdefault(Candidate(shape, str(row["family"]), config_of(row)), row)
        return rows

    @property
    def candidates(self) -> list[Candidate]:
        """Everything recorded, in the order of the file."""
        return list(self._rows)

    def shapes(self) -> list[GemmShape]:
        """Shapes that were recorded, in the order of the file."""
        return list(dict.fromkeys(candidate.shape for candidate in self._rows))

    def available(
        self, spaces: Mapping[str, SearchSpace], asked: Sequence[str] | None
    ) -> tuple[Mapping[str, SearchSpace], list[str]]:
        """All of them: nothing is compiled or run."""
        return spaces, []

    def legal(
        self, spaces: Mapping[str, SearchSpace], shape: GemmShape
    ) -> tuple[Mapping[str, RecordedPoints], list[str]]:
        """What was recorded of ``shape``, by family, whatever the spaces are.

        Raises:
            InputError: Nothing was.
        """
        found: dict[str, list[KernelConfig]] = {}
        for candidate in self._rows:
            if candidate.shape == shape:
                found.setdefault(candidate.family, []).append(candidate.config)
        if not found:
            held = ", ".join(map(str, self.shapes()))
            raise InputError(f"{shape} is not in the recorded sweep, which holds {held}; name one of these")
        return {family: RecordedPoints(configs) for family, configs in found.items()}, []

    def submit(self, candidate: Candidate) -> Future[Evaluation]:
        """The recorded verdict."""
        answer: Future[Evaluation] = Future()
        row = self._rows.get(candidate)
        answer.set_result(Evaluation("illegal", "not in the recorded sweep") if row is None else _evaluation(row))
        return answer


def _evaluation(row: Row) -> Evaluation:
    outcome: Outcome = row["outcome"]
    evidence: Evidence | None = None if pd.isna(row["evidence"]) else row["evidence"]
    facts = {name: _value(row[name]) for name in FACTS}
    objective = row["time_us"] if evidence == "measured" else row["predicted_us"]
    objective_us = None if pd.isna(objective) or outcome not in TIMED else float(objective)
    return Evaluation(outcome, str(_value(row["reason"]) or ""), evidence, objective_us, facts)


def _value(value: Any) -> Value:
    """A cell as an evaluation's fact: NA is None, NumPy's numbers are Python's."""
    if pd.isna(value):
        return None
    return value.item() if hasattr(value, "item") else value  # type: ignore[no-any-return]
