"""search.results.claims on a real PostgreSQL: one owner at a time, and what is silent comes free."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator

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


def claim(claims: SharedClaims, study: int, group: int, total: int, stored: Collection[int] = ()) -> Claim:
    with claims.ledger(study) as ledger:
        return ledger.claim(key_of(point(group)), {key_of(point(one)) for one in stored}, total)


def test_a_point_has_one_owner_and_none_when_it_is_stored(two: tuple[SharedClaims, SharedClaims], study: int) -> None:
    first, second = two
    assert claim(first, study, 1, 9) is Claim.ours
    assert claim(first, study, 1, 9) is Claim.ours  # asked again, as after a lost answer
    assert claim(second, study, 1, 9) is Claim.taken
    assert second.elsewhere(study) == {key_of(point(1))} and first.elsewhere(study) == frozenset()
    with first.ledger(study) as ledger:
        assert ledger.places() == {key_of(point(1)): False}
        ledger.drop(key_of(point(1)))
    assert claim(second, study, 1, 9, stored=[1]) is Claim.taken
    assert second.elsewhere(study) == frozenset()


def test_distinct_points_count_whoever_judges_them(two: tuple[SharedClaims, SharedClaims], study: int) -> None:
    first, second = two
    assert claim(first, study, 1, 2) is Claim.ours
    assert claim(second, study, 2, 2) is Claim.ours
    assert claim(first, study, 3, 2) is Claim.full
    assert claim(second, study, 2, 2, stored=[1]) is Claim.ours  # whose claim of 1 was not dropped yet: counted once
    assert claim(second, study, 3, 3, stored=[1]) is Claim.ours
    second.give_up(study, point(2))
    assert claim(first, study, 4, 3, stored=[1]) is Claim.ours


def test_the_place_of_a_dead_process_is_for_the_same_point_first_then_for_any(
    two: tuple[SharedClaims, SharedClaims], study: int
) -> None:
    first, second = two
    assert [claim(first, study, group, 2) for group in (1, 2)] == [Claim.ours] * 2 and first.lease(study)
    time.sleep(2 * LAPSE_S)  # alive, and heard
    assert claim(second, study, 1, 2) is Claim.taken and not second.lease(study)
    die(first)
    time.sleep(1.5 * LAPSE_S)
    assert claim(second, study, 3, 2) is Claim.full and second.lease(study)
    assert claim(second, study, 1, 2) is Claim.ours
    assert claim(first, study, 1, 2) is Claim.taken  # its late answer is refused
    time.sleep(LAPSE_S)
    assert claim(second, study, 3, 2) is Claim.ours
    assert claim(first, study, 2, 2) is Claim.full


def test_a_lease_is_given_back(two: tuple[SharedClaims, SharedClaims], study: int) -> None:
    first, second = two
    assert first.lease(study) and first.lease(study) and not second.lease(study)
    first.release(study)
    assert second.lease(study)


def test_closing_frees_what_was_held(two: tuple[SharedClaims, SharedClaims], study: int) -> None:
    first, second = two
    assert claim(first, study, 1, 1) is Claim.ours and first.lease(study)
    first.close()
    assert claim(second, study, 1, 1) is Claim.ours and second.lease(study)


def test_a_deleted_study_leaves_no_claims(server: Server, two: tuple[SharedClaims, SharedClaims], study: int) -> None:
    claim(two[0], study, 1, 1)
    storage = open_storage(server.url, create=True)
    storage.delete_study(study)
    assert two[1].elsewhere(study) == frozenset()


def test_sqlite_is_not_shared(tmp_path: object) -> None:
    assert shared_claims(open_storage(f"{tmp_path}/studies.db", create=True)) is None
