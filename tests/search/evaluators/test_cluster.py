"""search.evaluators.cluster on a real Ray of two nodes on this machine; a formula stands in for compiler and GPU."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from node_evaluator import NodeEvaluator, mortal, sending

from kernels.device import GFX950, DeviceKey
from kernels.errors import InputError
from kernels.families.fused import TileConfig
from kernels.problem import GemmShape
from search.evaluation import Candidate, Evaluation
from search.results import load
from search.results.record import point_of

pytest.importorskip("ray", reason="no Ray: pip install ray")

from ray.cluster_utils import Cluster

from search.cli import app
from search.commands import sweep
from search.evaluators.cluster import ClusterEvaluator, HostFacts, MeasuringCluster

ROOT = Path(__file__).resolve().parents[3]
SHAPE = GemmShape(16, 512, 2880)
SMALL = {"include_dashboard": False, "object_store_memory": 80 << 20}
WAIT_S = 120.0


def candidate(group: int, shape: GemmShape = SHAPE) -> Candidate:
    return Candidate(shape, "fused", TileConfig(GROUP_M=group))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two nodes, each of one core and one GPU that is not there."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")]))
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 1, **SMALL})
    made.add_node(num_cpus=1, num_gpus=1, object_store_memory=80 << 20)
    made.wait_for_nodes()
    yield made
    made.shutdown()


def kill_node(cluster: Any) -> None:
    """The second node is gone at once, with all its processes."""
    (node,) = cluster.worker_nodes
    cluster.remove_node(node, allow_graceful=False)


def wait_until(what: Callable[[], bool]) -> None:
    end_s = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < end_s
        time.sleep(0.1)


def judges(answers: list[Future[Evaluation]]) -> set[Any]:
    return {answer.result(WAIT_S).facts["device_name"] for answer in answers}


def test_a_node_that_leaves_costs_only_what_ran_there_which_is_judged_again(cluster: Any) -> None:
    said: list[str] = []
    evaluator = ClusterEvaluator(partial(NodeEvaluator, slowly_s=0.5), address=cluster.address, note=said.append)
    try:
        assert (evaluator.device, evaluator.protocol, evaluator.capacity) == (GFX950, "fake-v1", 4)
        assert len(judges([evaluator.submit(candidate(group)) for group in (1, 2, 3, 4)])) == 2  # both nodes
        with pytest.raises(InputError, match="the compiler is gone"):  # an error is one here too
            evaluator.submit(candidate(5)).result(WAIT_S)
        running = [evaluator.submit(candidate(group)) for group in (8, 16, 32, 64)]
        kill_node(cluster)
        assert wait(running, WAIT_S).not_done == set()
        assert {answer.result().outcome for answer in running} == {"ok"}
        assert len(judges([evaluator.submit(candidate(group)) for group in (1, 2)])) == 1
        assert [line.partition(" has left")[1] for line in said] == [" has left"]
        cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
        wait_until(lambda: evaluator.nodes.total() == 2)
        assert said[1].endswith(" has joined")
        assert len(judges([evaluator.submit(candidate(group)) for group in (1, 2, 3, 4)])) == 2
        last = evaluator.submit(candidate(7))  # takes the one host with it, then the other
        with pytest.raises(InputError, match="every node has left"):
            last.result(WAIT_S)
    finally:
        evaluator.close()


def test_each_study_and_its_finals_are_on_one_gpu(cluster: Any) -> None:
    evaluator = MeasuringCluster(NodeEvaluator, address=cluster.address)
    shapes = (SHAPE, replace(SHAPE, M=32))
    try:
        assert (evaluator.lanes, evaluator.offline) == (2, False)
        by_shape = {shape: judges([evaluator.submit(candidate(g, shape)) for g in (1, 2, 3)]) for shape in shapes}
        assert [len(used) for used in by_shape.values()] == [1, 1]
        assert len(set.union(*by_shape.values())) == 2
        for shape, (used,) in by_shape.items():
            times = evaluator.finals([candidate(1, shape), candidate(2, shape)], rounds=2).result(WAIT_S)
            assert times.rounds == ((float(used),) * 2,) * 2
            assert evaluator.confirm(candidate(1, shape), rounds=1).result(WAIT_S).rounds == ((float(used),) * 2,)
            evaluator.study_ended(shape)
    finally:
        evaluator.close()


def test_nodes_without_a_gpu_compile_and_what_they_made_travels_to_the_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")]))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 1, **SMALL})
    made.add_node(num_cpus=1, object_store_memory=80 << 20)
    made.wait_for_nodes()
    said: list[str] = []
    evaluator = MeasuringCluster(NodeEvaluator, address=made.address, note=said.append, compiles=sending)
    try:
        assert (evaluator.lanes, evaluator.capacity) == (1, 2)
        wait_until(lambda: evaluator.capacity == 4)  # one of each kind
        waits = evaluator.submit(candidate(9))  # on the GPU's node, so that there is more room on the other one
        answers = [evaluator.submit(candidate(group)).result(WAIT_S) for group in (3, 7, 1)]
        verdicts = [(answer.outcome, answer.reason) for answer in answers]
        assert verdicts[0] == ("compile_error", "3 is too much here")
        assert verdicts[1] == ("crashed", "compilation: the worker was killed by SIGKILL")
        assert verdicts[2] == ("ok", "") and evaluator.withdraw(waits)
        assert [path.relative_to(tmp_path).parts for path in tmp_path.rglob("k.json")] == [("KEY1", "k.json")]
        kill_node(made)
        assert evaluator.submit(candidate(2)).result(WAIT_S).outcome == "ok"
    finally:
        evaluator.close()
        made.shutdown()


def test_a_candidate_that_dies_or_does_not_end_or_waits_is_treated_as_on_one_machine(cluster: Any) -> None:
    said: list[str] = []
    evaluator = ClusterEvaluator(mortal, address=cluster.address, note=said.append)
    try:
        answers = [evaluator.submit(candidate(group)) for group in (7, 9, 1, 2, 4)]
        behind = evaluator.submit(candidate(16))
        wait_until(lambda: evaluator.withdraw(behind))  # it waits behind the one that does not end
        judged = [(answer.result(WAIT_S).outcome, answer.result().reason) for answer in answers]
        assert judged[:2] == [
            ("crashed", "while it was checked: the worker was killed by SIGKILL"),
            ("timed_out", "while it was checked: no answer within 2 s"),
        ]
        assert judged[2:] == [("ok", "")] * 3 and said == []  # no host was lost
    finally:
        evaluator.close()


class KilledUnderWay(ClusterEvaluator):
    """A node of ``cluster`` is killed when the sixth candidate is submitted."""

    def __init__(self, cluster: Any, note: Callable[[str], None]) -> None:
        super().__init__(partial(NodeEvaluator, slowly_s=0.3), address=cluster.address, note=note)
        self._cluster = cluster
        self.asked: list[Candidate] = []

    def submit(self, candidate: Candidate) -> Future[Evaluation]:
        self.asked.append(candidate)
        answer = super().submit(candidate)
        if len(self.asked) == 6:
            kill_node(self._cluster)
        return answer


def test_a_sweep_goes_on_when_a_node_is_killed(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[KilledUnderWay] = []

    def make(*_: object, note: Callable[[str], None], **__: object) -> ClusterEvaluator:
        made.append(KilledUnderWay(cluster, note))
        return made[0]

    monkeypatch.setattr(sweep, "make_cluster", make)
    words = ["sweep", str(SHAPE), "--families", "fused", "--trials", "16", "--sampler", "grid", "--until", "0"]
    app([*words, "--engine", "ray", "--address", cluster.address, "--results", str(tmp_path)], standalone_mode=False)
    assert made[0].nodes.total() == 1 and len(made[0].asked) == len(set(made[0].asked)) == 16
    stored = {point_of(row) for row in load(tmp_path).astype(object).to_dict("records")}
    assert stored == {(one.family, one.config) for one in made[0].asked}
    assert "has left; its candidates are judged elsewhere" in capsys.readouterr().out


FACTS = HostFacts("a", GFX950, "offline-s1", "0123", "3.9.0", 4)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"node": "b", "capacity": 8}, None),
        ({"sources": "4567"}, "its source hash is 4567, that of a 0123"),
        ({"triton": "3.8.0"}, "its Triton is 3.8.0, that of a 3.9.0"),
        (
            {"device": DeviceKey("gfx950", 128)},
            "its device is gfx950-128cu, that of a gfx950-256cu",
        ),
        (
            {"protocol": "offline-s2"},
            "its protocol is offline-s2, that of a offline-s1",
        ),
    ],
)
def test_a_node_that_is_unlike_the_others_is_told_by_name(change: dict[str, Any], said: str | None) -> None:
    expected = None if said is None else f"{said}; install the same version there"
    assert replace(FACTS, **change).differs_from(FACTS) == expected


def test_no_cluster_at_the_address_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:  # as Ray does where none runs; another test may run one just now
        raise ConnectionError("Could not find any running Ray instance. Please specify the one to connect to.")

    monkeypatch.setattr("ray.init", refuse)
    with pytest.raises(
        InputError, match=r"--address auto: no Ray cluster \(Could not .*start one with `ray start --head`"
    ):
        ClusterEvaluator(NodeEvaluator, address="auto")


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:{port}", r"nobody answers there \(Connection refused\); `ray start --head` prints the address"),
        ("ray://127.0.0.1:{port}", r"nobody answers there \(Connection refused\)"),
        ("nowhere.invalid:6379", r"nobody answers there \("),
        ("127.0.0.1:70000", "is no address of a Ray cluster; give HOST:PORT, or auto"),
        ("127.0.0.1", "is no address of a Ray cluster; give HOST:PORT, or auto"),
    ],
)
def test_an_address_where_nobody_listens_is_one_line_at_once(address: str, said: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    named = address.format(port=port)
    with pytest.raises(InputError, match=f"^--address {re.escape(named)}: {said}") as caught:
        ClusterEvaluator(NodeEvaluator, address=named)
    assert "\n" not in str(caught.value)
