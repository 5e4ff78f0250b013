"""search.evaluators.replay: a recorded sweep answers as the device did."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_gpu import H200

from kernels.device import GFX950, DeviceKey
from kernels.errors import InputError
from kernels.families.fused import TileConfig
from kernels.problem import GemmShape
from search.evaluation import Candidate, Evaluation
from search.evaluators.replay import ReplayEvaluator, is_replay
from search.results import save
from search.results.columns import COLUMNS, typed_frame
from search.results.record import make_record

SHAPE = GemmShape(16, 2112, 7168)


def candidate(group: int) -> Candidate:
    return Candidate(SHAPE, "fused", TileConfig(GROUP_M=group, quantizer="software"))


def recorded(path: Path, *judged: tuple[Candidate, Evaluation], device: DeviceKey = H200) -> Path:
    records = [
        make_record(study="s", device=device, candidate=one, evaluation=evaluation, started="2026-11-29T20:00:00+00:00",
                    duration_s=0.5, versions={"triton": "3.6.0", "torch": "2.11.0"})
        for one, evaluation in judged
    ]  # fmt: skip
    save(typed_frame({name: [record.get(name) for record in records] for name in COLUMNS}), path)
    return path


OK = Evaluation("ok", "", "measured", 20.5, {"time_lo_us": 20.0, "protocol": "cold-graph-v1", "deterministic": True})
SLOW = Evaluation("slow", "stopped", "measured", 60.0, {"protocol": "cold-graph-v1"})
WRONG = Evaluation("wrong_result", "3 values differ", facts={"mismatches": 3})


def test_a_recorded_candidate_gets_its_verdict_time_and_facts_back(tmp_path: Path) -> None:
    path = recorded(tmp_path / "r.parquet", (candidate(1), OK), (candidate(2), SLOW), (candidate(4), WRONG))
    replay = ReplayEvaluator(path)
    first, second, third = (replay.submit(candidate(group)).result() for group in (1, 2, 4))
    assert (first.outcome, first.evidence, first.objective_us) == ("ok", "measured", 20.5)
    assert (first.facts["time_lo_us"], first.facts["deterministic"]) == (20.0, True)
    assert (second.outcome, second.objective_us) == ("slow", 60.0)
    assert (third.outcome, third.reason, third.objective_us) == ("wrong_result", "3 values differ", None)
    assert (replay.device, replay.protocol) == (H200, "replay-cold-graph-v1")
    assert replay.shapes() == [SHAPE]
    assert replay.candidates == [candidate(1), candidate(2), candidate(4)]


def test_a_replayed_verdict_can_be_recorded_again(tmp_path: Path) -> None:
    path = recorded(tmp_path / "r.parquet", (candidate(1), OK))
    evaluation = ReplayEvaluator(path).submit(candidate(1)).result()
    again = recorded(tmp_path / "again.parquet", (candidate(1), evaluation))
    assert ReplayEvaluator(again).submit(candidate(1)).result() == evaluation


def test_an_unknown_candidate_is_illegal(tmp_path: Path) -> None:
    path = recorded(tmp_path / "r.csv", (candidate(1), OK))
    result = ReplayEvaluator(path).submit(candidate(8)).result()
    assert (result.outcome, result.reason) == ("illegal", "not in the recorded sweep")


def test_the_searchs_own_time_is_served_where_the_finals_repeated_it(tmp_path: Path) -> None:
    final = Evaluation("ok", "", "measured", 21.0, {"protocol": "cold-graph-v1", "selected": True})
    path = recorded(tmp_path / "r.parquet", (candidate(1), OK), (candidate(1), final))
    assert ReplayEvaluator(path).submit(candidate(1)).result().objective_us == 20.5


def test_results_of_two_devices_and_missing_files_are_refused(tmp_path: Path) -> None:
    one = recorded(tmp_path / "one.csv", (candidate(1), OK))
    other = Candidate(SHAPE, "fused", TileConfig())
    two = recorded(tmp_path / "two.csv", (other, OK), device=GFX950)
    both = tmp_path / "both.csv"
    both.write_text(one.read_text() + two.read_text().partition("\n")[2])
    with pytest.raises(InputError, match="2 devices"):
        ReplayEvaluator(both)


@pytest.mark.parametrize("name", ["none.parquet", "none", "."])
def test_a_missing_replay_is_named_as_it_was_asked_for(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"^--target replay:.*: no such file; name a results file") as caught:
        ReplayEvaluator(tmp_path / name)
    assert "--results" not in str(caught.value)


def test_a_replay_target_is_told_by_its_prefix() -> None:
    assert is_replay("replay:results/recorded")
    assert not is_replay("local")
