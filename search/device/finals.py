"""The end of a measured study: re-time its finalists, choose the winner, confirm it, and keep that with the trials."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import takewhile
from typing import Any, Protocol

import numpy as np

from kernels.device import DeviceKey
from kernels.problem import GemmShape
from search.device.selection import ROUNDS, Final, Finalist, Selection, choose_finalists, finalist, select
from search.evaluation import Candidate, Evaluation, FinalsFailedError, FinalTimes, Point, Value
from search.results.columns import Role, facts_without
from search.results.record import make_record, point_of
from search.results.trials import KeptTrial, KeptTrials

CONFIRM_ROUNDS = 20
VERSIONS = ("triton", "torch")
NEW = ("time_us", *VERSIONS)  # by the finals, and given apart
Row = Mapping[str, Any]  # what a trial recorded
KEPT = [name for name in facts_without(Role.rate, Role.finals, Role.run, Role.queue) if name not in NEW]


class FinalsEvaluator(Protocol):
    """Evaluates side by side; ``search.evaluators.device.DeviceEvaluator`` is one."""

    device: DeviceKey

    def finals(self, candidates: Sequence[Candidate], *, rounds: int, seed: int = 0) -> Future[FinalTimes]:
        """Times [round][candidate]."""

    def confirm(self, winner: Candidate, *, rounds: int, seed: int = 0) -> Future[FinalTimes]:
        """Times [round] of the winner, as searched and through the dispatcher."""


@dataclass(frozen=True)
class Decision:
    """What a study's finals gave.

    Args:
        confirmed_us: The winner through the dispatcher; None where that failed, and ``why_not``.
    """

    selection: Selection
    confirmed_us: float | None
    why_not: str = ""


def decide(
    kept: KeptTrials, shape: GemmShape, evaluator: FinalsEvaluator, incumbent: Point | None, seed: int = 0
) -> Decision | None:
    """Hold the finals of ``kept`` and add a trial for each finalist; None where there is nothing (new) to decide.

    Raises:
        FinalsFailedError: The finalists could not be timed; the trials stand as they are.
    """
    trials = kept.read()
    if not trials or _decided(trials):
        return None
    records = {_candidate(shape, trial.record): trial.record for trial in trials}
    chosen = choose_finalists(_measured(records, incumbent))
    if not chosen:
        return None
    start_s = time.monotonic()
    times = evaluator.finals([one.candidate for one in chosen], rounds=ROUNDS, seed=seed).result()
    selection = select(chosen, times.rounds)
    decision = _confirmed(selection, evaluator, seed)
    seconds = (time.monotonic() - start_s) / len(chosen)
    for final in selection.finals:
        record = _final_record(records[final.finalist.candidate], final, decision, evaluator.device, seconds)
        kept.add(record, final=True)
    return decision


def _decided(trials: Sequence[KeptTrial]) -> bool:
    """Whether the winner of finals was kept after the last trial of the search; finals may have been cut short."""
    since = takewhile(lambda trial: trial.final, reversed(trials))
    return any(trial.record["selected"] for trial in since)


def _candidate(shape: GemmShape, record: Row) -> Candidate | None:
    point = point_of(record)
    return None if point is None else Candidate(shape, *point)


def _measured(records: Mapping[Candidate | None, Row], incumbent: Point | None) -> list[Finalist]:
    return [
        finalist(candidate, record, incumbent=(candidate.family, candidate.config) == incumbent)
        for candidate, record in records.items()
        if candidate is not None and record["outcome"] == "ok" and record["evidence"] == "measured"
    ]


def _confirmed(selection: Selection, evaluator: FinalsEvaluator, seed: int) -> Decision:
    try:
        times = evaluator.confirm(selection.winner.finalist.candidate, rounds=CONFIRM_ROUNDS, seed=seed).result()
    except FinalsFailedError as error:
        return Decision(selection, None, f"not timed through the dispatcher: {error}")
    return Decision(selection, float(np.median([row[-1] for row in times.rounds])))


def _final_record(record: Row, final: Final, decision: Decision, device: DeviceKey, seconds: float) -> dict[str, Value]:
    """The trial's record with the finals' time; that of the winner says so."""
    facts: dict[str, Value] = {name: record[name] for name in KEPT if name in record}
    facts |= {"time_lo_us": final.lo_us, "time_hi_us": final.hi_us, "samples": decision.selection.rounds}
    facts["selected"] = final is decision.selection.winner
    if facts["selected"]:
        facts |= decision.selection.facts() | {"confirmed_us": decision.confirmed_us}
    why_not = decision.why_not if facts["selected"] else ""
    return make_record(
        study=record["study"], device=device, candidate=final.finalist.candidate, target=record.get("target"),
        evaluation=Evaluation("ok", why_not, "measured", final.time_us, facts),
        started=datetime.now(timezone.utc).isoformat(timespec="seconds"), duration_s=seconds,
        versions={name: record[name] for name in VERSIONS if name in record},
    )  # fmt: skip
