"""Mistakes that an engineer would make, compiled from changed sources: each is caught, by its kind."""

from __future__ import annotations

import re

import pytest
from compiled_programs import session_folder, skip_unless_here
from gate_mutations import judged_source
from source_mutations import LAUNCH_MUTATIONS, SOURCE_MUTATIONS, SourceMutation, mutated_launch

from kernels.errors import WrongResultError
from search.gate.sample import take_sample
from search.gfx950.code.artifacts import ArtifactCache

# Kind, and what the message says of it.
KINDS = {
    "fused, tiny blocks flushed, M = 1": r"C\[0, \d+\] is",
    "fused, exponent clamped too early, M = 31": "instead of",
    "fused, NaN lost, M = 1": "instead of nan",
    "fused, carry beyond 1.75 only, M = 1": r"C\[0, \d+\] is",
    "fused, carry beyond 1.75 only, M = 1, K = 64": r"^at M = 1: C\[0, \d+\] is",
    "fused, NaN lost in step 5 of a single row": "^at M = 1: .* instead of nan",
    "fused, Inf lost in step 14 of a single row": r"^at M = 1: C\[0, \d+\] is",
    "fused, one tile of 50 is wrong, 38": r"^at M = 16: C\[\d+, 24\d\d\] is",
    "fused, store truncates": "instead of",
    "fused, denormal sums flushed": r"C\[11, \d+\] is",
    "fused, sums clamped": r"C\[7, \d+\] is -?3.29649e\+38 instead of",
    "fused, flat mask": "conflicting_stores|whose tile it is not",
    "fused, a tile is written twice, right last": "conflicting_stores|whose tile it is not",
    "fused, a tile is written twice, right first": "conflicting_stores|whose tile it is not",
    "fused, rows rounded up": r"^at M = \d+: ",
    "fused, stride of A ignored": r"^with rows of A 116[89] elements apart: ",
    "fused, stride of A rounded down": r"^with rows of A 116[89] elements apart: ",
    "fused_splitk_atomic, A is used as scratch memory": "read_only_store",
    "fused_splitk_ticket, slices overlap": "conflicting_stores",
    "fused_splitk_ticket, stores not waited for": "stale_read: .* without release",
    "fused_splitk_ticket, ticket acquires only": "stale_read: .* without release",
    "fused_splitk_ticket, ticket releases only": "stale_read: .* acquire at device scope",
    "fused_splitk_ticket, ticket of a workgroup": "stale_read: .* without release",
    "fused_splitk_ticket, tickets not cleared": r"tickets\[0\] is 1 after the launch",
    "fused_splitk_ticket, everybody sums": "uninitialised_store",  # of a slice that comes later
    "staged_hip, no wait at the end": "lds_load_at_end",
    "staged_hip, no barrier": "lds_race",
    "staged_hip, carry beyond 1.75 only, M = 1": r"C\[0, \d+\] is",
    "fused_splitk_atomic, columns not masked, fused_splitk_atomic": "whose tile it is not|out_of_bounds",
}


def named(name: str) -> tuple[int, SourceMutation]:
    names = [f"{mutation.family}, {mutation.name}" for mutation in SOURCE_MUTATIONS]
    return names.index(name), SOURCE_MUTATIONS[names.index(name)]


@pytest.mark.parametrize(("name", "message"), KINDS.items(), ids=KINDS)
def test_a_mistake_in_a_source_is_caught(name: str, message: str) -> None:
    number, mutation = named(name)
    skip_unless_here(mutation.family)
    where, why = judged_source(mutation, number, ArtifactCache(session_folder()))
    assert where in ("check", "finalist")
    assert re.search(message, why), why


@pytest.mark.parametrize("mutation", [m for m in LAUNCH_MUTATIONS if "short" in m.name], ids=lambda m: m.name)
def test_a_short_grid_is_caught_without_execution(mutation: object) -> None:
    wrong = next(m for m in LAUNCH_MUTATIONS if m is mutation)
    with pytest.raises(WrongResultError, match="its grid is"):
        take_sample(mutated_launch(wrong), wrong.shape)
