"""The rows that ``export`` is about to write, executed as ``verify`` would, in every way in which they will serve."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from kernels.device import DeviceKey
from kernels.wording import counted
from search.commands.export import Claim, Proof
from search.commands.verify import BACKENDS, Backend
from search.evaluation import Evaluation

WAYS = ("device", "simulator")  # the GPU of the table if it is here; ``GFX950`` machine code, wait states and all


def prove(device: DeviceKey, claims: Sequence[Claim]) -> Proof:
    """Execute the rows of ``claims``, of one device, in each of :data:`WAYS` that can be gone here."""
    refusals = {name: BACKENDS[name].refusal(device) for name in WAYS}
    if None not in refusals.values():
        return Proof(unproven=dict.fromkeys(claims, "; ".join(filter(None, refusals.values()))))
    print(f"executing {counted(len(claims), 'row')} as they will serve", file=sys.stderr)
    proofs = [_proof(BACKENDS[name], device, claims) for name, refusal in refusals.items() if refusal is None]
    right = frozenset[Claim]().union(*(one.right for one in proofs))
    wrong = {claim: reason for one in proofs for claim, reason in one.wrong.items()}
    doubtful = {claim: reason for one in proofs for claim, reason in one.unproven.items()}
    unproven = {claim: reason for claim, reason in doubtful.items() if claim not in right and claim not in wrong}
    return Proof(right - set(wrong), wrong, unproven)


def _proof(backend: Backend, device: DeviceKey, claims: Sequence[Claim]) -> Proof:
    """What one way finds."""
    absent = {claim: backend.absence(claim.row, device) for claim in claims}
    missing = {claim: reason for claim, reason in absent.items() if reason is not None}
    chosen = [claim for claim in claims if claim not in missing]
    judged = zip(chosen, backend.judge(device, [claim.candidate for claim in chosen]), strict=True)
    failed = {claim: done for claim, done in judged if done.outcome != "ok"}
    wrong = {claim: _said(done) for claim, done in failed.items() if _refuses(claim, done)}
    unproven = {claim: _said(done) for claim, done in failed.items() if claim not in wrong}
    return Proof(frozenset(chosen) - set(failed), wrong, missing | unproven)


def _refuses(claim: Claim, done: Evaluation) -> bool:
    """A measured row was right on the GPU that it is for: only a wrong result speaks against it."""
    return done.outcome == "wrong_result" or claim.row.evidence == "predicted"


def _said(done: Evaluation) -> str:
    return f"{done.outcome}: {' '.join(done.reason.split())}"
