"""search.results.claims on a real PostgreSQL: one owner at a time, and what is silent comes free."""

from __future__ import annotations

import time
from collections.abc import Iterator

import optuna
import pytest
from postgres import Server, running_server

from kernels.families.fused import TileConfig
from search.evaluation import Point
from search.results.claims import Claim, SharedClaims, key_of, point_of_key, shared_claims
from search.results.storage import open_storage

LAPSE_S = 2.0
optuna.logging.set_verbosity(optuna.logging.WARNING)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as running:
        yield running


@pytest.fixture
def study(server: Server, request: pytest.FixtureRequest) -> int:
    storage = open_storage(server.url, create=True)
    return optuna.create_study(storage=storage, study_name=str(request.node.name))._study_id


@pytest.fixture
def two(server: Server) -> Iterator[tuple[SharedClaims, SharedClaims]]:
    """Two processes, as the database sees them."""
    pair = [shared_claims(open_storage(server.url, create=True), LAPSE_S) for _ in range(2)]
    assert pair[0] is not None and pair[1] is not None
    yield pair[0], pair[1]
    for one in pair:
        if one is not None:
            one.close()


def point(group: int) -> Point:
    return "fused", TileConfig(GROUP_M=group)


def die(claims: SharedClaims) -> None:
    """No sign of life any more, and nothing is freed."""
    claims._closed.set()
    claims._heart.join()


def test_a_point_is_the_same_text_in_every_process() -> None:
    assert point_of_key(key_of(point(4))) == point(4)
    assert key_of(point(4)) != key_of(point(8))


def test_a_point_has_one_owner_and_none_when_it_is_done(two: tuple[SharedClaims, SharedClaims], study: int) -> None:
    first, second = two
    assert first.claim(study, point(1), 9) is Claim.ours
    assert first.claim(study, point(1), 9) is Claim.ours  # asked again, as after a lost answer
    assert second.claim(study, point(1), 9) is Claim.taken
    assert second.elsewhere(study) == {key_of(point(1))} and first.elsewhere(study) == frozenset()
    assert first.renew(study, point(1)) and not second.renew(study, point(1))
    first.done(study, point(1))
    assert second.claim(study, point(1), 9) is Claim.taken
    assert second.elsewhere(study) == frozenset()


def test_distinct_points_count_whoever_judges_them(two: tuple[SharedClaims, SharedClaims], study: int) -> None:
    first, second = two
    assert first.claim(study, point(1), 2) is Claim.ours
    assert second.claim(study, point(2), 2) is Claim.ours
    assert first.claim(study, point(3), 2) is Claim.full
    second.give_up(study, point(2))
    assert first.claim(study, point(3), 2) is Claim.ours


def test_what_a_dead_process_held_comes_free_and_its_late_answer_is_refused(
    two: tuple[SharedClaims, SharedClaims], study: int
) -> None:
    first, second = two
    assert first.claim(study, point(1), 1) is Claim.ours and first.lease(study)
    time.sleep(2 * LAPSE_S)  # alive, and heard
    assert second.claim(study, point(2), 1) is Claim.full and not second.lease(study)
    die(first)
    time.sleep(1.5 * LAPSE_S)
    assert second.claim(study, point(1), 1) is Claim.ours and second.lease(study)
    assert not first.renew(study, point(1))


def test_a_lease_is_given_back(two: tuple[SharedClaims, SharedClaims], study: int) -> None:
    first, second = two
    assert first.lease(study) and first.lease(study) and not second.lease(study)
    first.release(study)
    assert second.lease(study)


def test_closing_frees_what_was_held(two: tuple[SharedClaims, SharedClaims], study: int) -> None:
    first, second = two
    assert first.claim(study, point(1), 1) is Claim.ours and first.lease(study)
    first.close()
    assert second.claim(study, point(1), 1) is Claim.ours and second.lease(study)


def test_a_deleted_study_leaves_no_claims(server: Server, two: tuple[SharedClaims, SharedClaims], study: int) -> None:
    two[0].claim(study, point(1), 1)
    storage = open_storage(server.url, create=True)
    storage.delete_study(study)
    assert two[1].elsewhere(study) == frozenset()


def test_sqlite_is_not_shared(tmp_path: object) -> None:
    assert shared_claims(open_storage(f"{tmp_path}/studies.db", create=True)) is None
