"""The rows that ``export`` is about to write, executed as ``verify`` would, in every way in which they will serve."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import reduce

from kernels.device import DeviceKey
from kernels.tables.rows import TableRow, needs_proof
from kernels.wording import counted
from search.commands.export import Claim, Proof
from search.commands.verify import BACKENDS, UNFINISHED, Backend
from search.evaluation import Evaluation

ROUNDING = 0.05  # of a time: which tiles were executed, in whose code some instructions are only sometimes taken
WAYS = ("device", "simulator")  # the GPU of the table if it is here; ``GFX950`` machine code, wait states and all


def prove(device: DeviceKey, claims: Sequence[Claim]) -> Proof:
    """Execute the rows of ``claims``, of one device, in each of :data:`WAYS` that can be gone here."""
    refusals = {name: BACKENDS[name].refusal(device) for name in WAYS}
    if None not in refusals.values():
        return Proof(unproven=dict.fromkeys(claims, "; ".join(filter(None, refusals.values()))))
    print(f"executing {counted(len(claims), 'row')}: each as it will serve", file=sys.stderr)
    return reduce(
        Proof.joined, (_proof(BACKENDS[name], device, claims) for name, why in refusals.items() if why is None)
    )


def _proof(backend: Backend, device: DeviceKey, claims: Sequence[Claim]) -> Proof:
    """What one way finds."""
    absent = {claim: backend.absence(claim.row, device) for claim in claims}
    missing = {claim: reason for claim, reason in absent.items() if reason is not None}
    chosen = [claim for claim in claims if claim not in missing]
    judged = zip(chosen, backend.judge(device, [claim.candidate for claim in chosen]), strict=True)
    faults = {claim: (done, fault) for claim, done in judged if (fault := _fault(claim.row, done)) is not None}
    found: dict[str, dict[Claim, str]] = {"wrong": {}, "unproven": missing, "failed": {}}
    for claim, (done, fault) in faults.items():
        found[_kind(claim.row, done)][claim] = fault
    return Proof(frozenset(chosen) - set(faults), **found)


def _fault(row: TableRow, done: Evaluation) -> str | None:
    """What speaks against ``row``: it is wrong, or the same model predicts another time than its results say."""
    if done.outcome != "ok":
        return f"{done.outcome}: {' '.join(done.reason.split())}"
    same = row.evidence == "predicted" and row.made.protocol == done.facts.get("model") and not needs_proof(row)
    if not same or done.objective_us is None or abs(done.objective_us / row.cost_us - 1) <= ROUNDING:
        return None
    return f"{row.made.protocol} predicts {done.objective_us:.4g} us here, not {row.cost_us:g}: sweep it again"


def _kind(row: TableRow, done: Evaluation) -> str:
    """What a fault makes of ``row``. A measured one was right on its GPU: only a wrong result speaks against it."""
    if done.outcome == "wrong_result":
        return "wrong"
    if row.evidence == "measured":
        return "unproven"
    return "failed" if done.outcome in UNFINISHED else "wrong"
