"""search.commands.proof and what export makes of it: a wrong row is left out, whoever says that it won."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import triton
from result_rows import measured, only, predicted, results

from kernels.device import GFX950, DeviceKey
from kernels.problem import GemmShape
from kernels.tables.file import load_table
from kernels.tables.rows import TableRow
from search.commands.export import Claim, Proof, export
from search.commands.proof import prove
from search.evaluation import Candidate, Evaluation, ServedCandidate


class Asked:
    """Proves claims of which ``wrong`` says nothing, and remembers what it was asked."""

    def __init__(self, *wrong: int) -> None:
        self.wrong = wrong  # num_warps of rows that are
        self.claims: list[Claim] = []

    def __call__(self, device: DeviceKey, claims: Sequence[Claim]) -> Proof:
        self.claims += claims
        bad = {claim: "at M = 15: off" for claim in claims if claim.row.config.to_dict()["num_warps"] in self.wrong}
        return Proof(frozenset(claims) - set(bad), bad)


def test_a_wrong_winner_is_left_out_and_the_runner_up_written(tmp_path: Path) -> None:
    asked = Asked(8)
    frame = results(predicted(8.0, num_warps=8), predicted(9.0, num_warps=4))
    done = only(export(frame, table=tmp_path / "t.yaml", output=None, min_gain=0.0, prove=asked))
    row = only(list(load_table(tmp_path / "t.yaml").rows))
    assert (row.config.num_warps, row.predicted_us) == (4, 9.0)
    assert [claim.row.predicted_us for claim in done.proof.wrong] == [8.0]
    assert [claim.row.predicted_us for claim in asked.claims] == [8.0, 9.0]


def test_a_wrong_row_of_a_range_is_left_out_and_the_runner_up_of_the_range_written(tmp_path: Path) -> None:
    trials = [
        predicted(us * M / 16, M=M, num_warps=warps, study=f"s{M}")
        for M in (16, 32) for us, warps in ((8.0, 8), (9.0, 4))
    ]  # fmt: skip
    path = tmp_path / "t.yaml"
    export(results(*trials), table=path, output=None, min_gain=0.0, max_regret=0.03, prove=Asked(8))
    row = only(list(load_table(path).rows))
    assert (row.M, row.config.num_warps, row.predicted_us) == (32, 4, 18.0)


def test_an_m_of_a_ladder_without_a_right_row_has_no_winner_and_the_others_of_its_range_have(tmp_path: Path) -> None:
    trials = [
        predicted(M / 2, M=M, num_warps=warps, study=f"s{M}") for M, warps in ((8, 4), (16, 4), (32, 8))
    ]  # fmt: skip
    path = tmp_path / "t.yaml"
    done = only(export(results(*trials), table=path, output=None, min_gain=0.0, max_regret=0.03, prove=Asked(8)))
    assert [row.M for row in load_table(path).rows] == [16]
    assert done.unresolved == (GemmShape(32, 2112, 7168),)


def test_a_shape_whose_only_winner_is_wrong_has_none(tmp_path: Path) -> None:
    done = only(export(results(predicted(8.0)), table=tmp_path / "t.yaml", output=None, min_gain=0.0, prove=Asked(4)))
    assert (done.unresolved, load_table(tmp_path / "t.yaml").rows) == ((GemmShape(16, 2112, 7168),), ())


def test_a_claim_is_of_every_m_that_the_row_serves_in_the_new_table(tmp_path: Path) -> None:
    asked, path = Asked(), tmp_path / "t.yaml"
    export(results(predicted(8.0)), table=path, output=None, min_gain=0.0, prove=asked)
    alone = only(asked.claims)
    assert (alone.candidate.lowest_M, alone.candidate.greatest_M) == (alone.row.least_M, alone.row.greatest_M)
    export(results(predicted(7.0, M=4)), table=path, output=None, min_gain=0.0, prove=asked)
    assert [claim.row.M for claim in asked.claims[1:]] == [4]  # 16 does not serve more than before


def test_what_the_table_holds_already_is_not_proven_again_and_other_kernels_are(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    export(results(predicted(8.0)), table=path, output=None, min_gain=0.0, prove=Asked())
    asked = Asked()
    export(results(predicted(8.0)), table=path, output=None, min_gain=0.0, prove=asked)
    assert asked.claims == []
    export(results(predicted(7.0)), table=path, output=None, min_gain=0.0, prove=asked)
    assert asked.claims == []  # the same row, faster: nothing else is claimed
    export(results(predicted(6.0, triton="3.8.0")), table=path, output=None, min_gain=0.0, prove=asked)
    assert [claim.row.made.triton for claim in asked.claims] == ["3.8.0"]


class Judge:
    """Stands for a backend of ``verify``."""

    def __init__(self, *answers: Evaluation) -> None:
        self.answers = answers
        self.seen: list[Candidate] = []

    def refusal(self, device: DeviceKey) -> str | None:
        return None if self.answers else "not here"

    def absence(self, row: TableRow, device: DeviceKey) -> str | None:
        return "no compiler" if row.M == 99 else None

    def judge(self, device: DeviceKey, candidates: Sequence[Candidate]) -> Iterator[Evaluation]:
        self.seen += candidates
        yield from self.answers[: len(candidates)]


def claims_of(tmp_path: Path, *trials: dict[str, object]) -> list[Claim]:
    asked = Asked()
    export(results(*trials), table=tmp_path / "claims.yaml", output=None, min_gain=0.0, prove=asked)  # type: ignore[arg-type]
    return asked.claims


OK, WRONG, CRASHED = (
    Evaluation("ok"),
    Evaluation("wrong_result", "at M = 15: off"),
    Evaluation("crashed", "not checked"),
)
LATE, REFUSED = Evaluation("timed_out", "no answer within 120 s"), Evaluation("compile_error", "the compiler aborted")


def test_rows_are_executed_as_served_candidates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Judge(OK)
    monkeypatch.setattr("search.commands.proof.BACKENDS", {"device": Judge(), "simulator": judge})
    claims = claims_of(tmp_path, predicted(8.0))
    assert prove(GFX950, claims) == Proof(frozenset(claims))
    assert isinstance(only(judge.seen), ServedCandidate)


@pytest.mark.parametrize(
    ("trial", "answer", "kind"),
    [
        (predicted(8.0), WRONG, "wrong"),
        (
            predicted(8.0),
            CRASHED,
            "failed",
        ),  # nothing but the simulator ever said that it is right, nobody that it is not
        (predicted(8.0), LATE, "failed"),
        (predicted(8.0), REFUSED, "wrong"),
        (measured(8.0), WRONG, "wrong"),
        (measured(8.0), CRASHED, "unproven"),  # right on its GPU; that the simulator lacks something is no fault of it
    ],
)
def test_what_speaks_against_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trial: dict[str, object], answer: Evaluation, kind: str
) -> None:
    monkeypatch.setattr("search.commands.proof.BACKENDS", {"device": Judge(), "simulator": Judge(answer)})
    claims = claims_of(tmp_path, trial)
    said = {claims[0]: f"{answer.outcome}: {answer.reason}"}
    assert prove(GFX950, claims) == Proof(**{kind: said})  # type: ignore[arg-type]


def test_a_new_row_that_nobody_could_execute_is_left_out_and_one_of_the_table_stays(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    export(results(predicted(8.0)), table=path, output=None, min_gain=0.0, prove=Asked())

    def failing(device: DeviceKey, claims: Sequence[Claim]) -> Proof:
        return Proof(failed=dict.fromkeys(claims, "killed"))

    done = only(export(results(predicted(7.0, num_warps=8)), table=path, output=None, min_gain=0.0, prove=failing))
    assert [claim.row.predicted_us for claim in done.proof.failed] == [7.0]
    assert [row.predicted_us for row in load_table(path).rows] == [8.0]


def test_both_the_gpu_and_the_simulator_are_asked_where_both_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = claims_of(tmp_path, measured(8.0))
    monkeypatch.setattr("search.commands.proof.BACKENDS", {"device": Judge(OK), "simulator": Judge(WRONG)})
    assert list(prove(GFX950, claims).wrong) == claims  # wait states show on the simulator only
    monkeypatch.setattr("search.commands.proof.BACKENDS", {"device": Judge(OK), "simulator": Judge(CRASHED)})
    assert prove(GFX950, claims) == Proof(frozenset(claims))
    guess = claims_of(tmp_path, predicted(8.0, N=64))  # killed by a fault of the GPU, perhaps
    monkeypatch.setattr("search.commands.proof.BACKENDS", {"device": Judge(CRASHED), "simulator": Judge(OK)})
    assert list(prove(GFX950, guess).failed) == guess


def test_a_row_that_nothing_here_can_run_is_not_proven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claims = claims_of(tmp_path, predicted(8.0))
    monkeypatch.setattr("search.commands.proof.BACKENDS", {"device": Judge(), "simulator": Judge()})
    assert list(prove(GFX950, claims).unproven.values()) == ["not here; not here"]
    missing = claims_of(tmp_path, predicted(8.0, M=99))
    monkeypatch.setattr("search.commands.proof.BACKENDS", {"device": Judge(), "simulator": Judge(OK)})
    assert list(prove(GFX950, missing[:1]).unproven.values()) == ["no compiler"]


def test_a_predicted_time_that_the_same_model_does_not_predict_here_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = claims_of(tmp_path, predicted(0.5, model="m1", triton=triton.__version__))
    for model, us, wrong in (("m1", 3.7, True), ("m1", 0.51, False), ("m2", 3.7, False)):
        answer = Evaluation("ok", evidence="predicted", objective_us=us, facts={"model": model})
        monkeypatch.setattr("search.commands.proof.BACKENDS", {"device": Judge(), "simulator": Judge(answer)})
        said = {claims[0]: "m1 predicts 3.7 us here, not 0.5: sweep it again"}
        assert prove(GFX950, claims) == (Proof(wrong=said) if wrong else Proof(frozenset(claims)))
