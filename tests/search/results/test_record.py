"""search.results.record: what a trial records, and what it refuses to record."""

from __future__ import annotations

import math

import numpy as np
import pytest
from made_records import predicted, record

from kernels.families import FAMILIES
from search.evaluation import Evaluation, Value
from search.results.columns import COLUMNS


def test_record_holds_shape_configuration_verdict_and_origin() -> None:
    made = record(predicted(10.0, vgprs=np.int64(128), mfma=64.0, cached=np.True_))
    assert (made["M"], made["N"], made["K"], made["family"], made["BLOCK_M"]) == (16, 2112, 7168, "fused", 16)
    assert (made["arch"], made["cu_count"], made["target"]) == ("gfx950", 256, "gfx950-256cu")
    assert (made["outcome"], made["evidence"], made["predicted_us"]) == ("ok", "predicted", 10.0)
    assert (made["triton"], made["source_hash"]) == ("3.9.0", FAMILIES["fused"].source_hash)
    assert (made["vgprs"], made["mfma"], made["cached"]) == (128, 64, True)
    assert [type(made[name]) for name in ("vgprs", "mfma", "cached")] == [int, int, bool]
    assert "split_k" not in made and "time_us" not in made
    assert list(made) == [name for name in COLUMNS if name in made]


def test_rates_of_a_predicted_time_have_their_own_columns() -> None:
    made = record(predicted(10.0, roofline_us=2.5))
    # 2*16*2112*7168 FLOP in 10 us; A and C in bf16, B at 4 bits with one scale byte per 32
    assert made["predicted_tflops"] == pytest.approx(48.4442112)
    bytes_moved = 2 * 16 * (7168 + 2112) + 2112 * 7168 / 2 + 2112 * 7168 / 32
    assert made["predicted_bandwidth_gbs"] == pytest.approx(bytes_moved / 10e-6 / 1e9)
    assert made["roofline_fraction"] == 0.25
    assert "tflops" not in made and "bandwidth_gbs" not in made


def test_measured_time_never_mixes_with_the_prediction_beside_it() -> None:
    facts: dict[str, Value] = {"predicted_us": 10.0, "time_lo_us": 19.0, "time_hi_us": 21.0, "roofline_us": 2.5}
    made = record(Evaluation("ok", evidence="measured", objective_us=20.0, facts=facts))
    assert (made["time_us"], made["predicted_us"]) == (20.0, 10.0)
    assert made["tflops"] == pytest.approx(24.2221056)
    assert made["predicted_tflops"] == pytest.approx(48.4442112)
    assert made["roofline_fraction"] == 0.125  # of the measured time


def test_failed_candidate_keeps_its_reason_on_one_line() -> None:
    made = record(Evaluation("resource_limit", "spills\n  12 registers", facts={"spills": 12}))
    assert (made["outcome"], made["reason"], made["spills"]) == ("resource_limit", "spills 12 registers", 12)
    assert "evidence" not in made and "predicted_us" not in made


def test_unknown_numbers_are_left_out() -> None:
    made = record(Evaluation("wrong_result", facts={"max_rel_error": math.inf, "mismatches": 3, "vgprs": None}))
    assert made["mismatches"] == 3
    assert "max_rel_error" not in made and "vgprs" not in made


@pytest.mark.parametrize(
    ("evaluation", "message"),
    [
        (predicted(1.0, vgpr=3), "'vgpr' is not a results column"),
        (predicted(1.0, M=3), "'M' is not a results column that an evaluation fills"),
        (predicted(1.0, vgprs=3.5), "vgprs = 3.5 is not a whole number"),
        (predicted(1.0, vgprs="many"), "vgprs = 'many' is not of type Int64"),
        (predicted(1.0, vgprs=True), "vgprs = True is not of type Int64"),
        (predicted(1.0, deterministic=1), "deterministic = 1 is not of type boolean"),
        (predicted(1.0, model=3), "model = 3 is not of type string"),
        (predicted(1.0, predicted_us=2.0), "predicted_us = 2.0 differs from objective_us = 1.0"),
        (predicted(math.inf), "objective_us = inf is not a time"),
        (predicted(-1.0), "objective_us = -1.0 is not a time"),
        (Evaluation("ok"), "an ok evaluation needs evidence and objective_us"),
    ],
)
def test_record_that_would_lie_is_refused(evaluation: Evaluation, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        record(evaluation)
    assert message in str(caught.value)


def test_unknown_version_is_refused() -> None:
    with pytest.raises(ValueError, match="'rocm' is not a results column"):
        record(predicted(1.0), versions={"rocm": "7"})
