"""The device evaluator on a real GPU: right candidates get a time, a candidate that is too large gets its outcome."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

import pytest
import torch

from kernels.config import KernelConfig
from kernels.device import DeviceKey, local_device
from kernels.families import FAMILIES
from kernels.problem import GemmShape
from search.evaluation import Candidate
from search.evaluators.device import DeviceEvaluator
from search.space.available import absence

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that torch can use"),
]
SHAPE = GemmShape(17, 192, 448)  # tails everywhere


@pytest.fixture(scope="module")
def device() -> DeviceKey:
    found = local_device()
    assert found is not None
    return found


@pytest.fixture(scope="module")
def evaluator(device: DeviceKey) -> Iterator[DeviceEvaluator]:
    made = DeviceEvaluator(device, jobs=4, gpus=(0,))
    yield made
    made.close()


def config(family: str, device: DeviceKey, **knobs: int) -> KernelConfig:
    quantizer = "hardware" if device.has_scaled_fp4 else "software"
    named = {field.name for field in fields(FAMILIES[family].config_type)}
    values = {"quantizer": quantizer, "BLOCK_K": 128} if "quantizer" in named else {}
    return FAMILIES[family].config({**values, **knobs})


def test_every_family_is_right_and_gets_a_time(evaluator: DeviceEvaluator, device: DeviceKey) -> None:
    here = [name for name in FAMILIES if absence(name, device, offline=False) is None]
    answers = [evaluator.submit(Candidate(SHAPE, name, config(name, device))) for name in here]
    results = [answer.result(timeout=300) for answer in answers]
    # The later ones may be clearly slower than the best so far; then their timing stops early.
    found = {name: (result.outcome, result.reason) for name, result in zip(here, results, strict=True)}
    assert {name: one for name, one in found.items() if one[0] not in ("ok", "slow")} == {}
    assert "ok" in {outcome for outcome, _ in found.values()}
    assert all(result.facts["mismatches"] == 0 and (result.objective_us or 0) > 1 for result in results)


def test_a_candidate_that_needs_too_much_shared_memory_costs_itself_only(
    evaluator: DeviceEvaluator, device: DeviceKey
) -> None:
    huge = config("fused", device, BLOCK_M=128, BLOCK_N=256, BLOCK_K=512, num_stages=4, num_warps=8)
    too_large = evaluator.submit(Candidate(SHAPE, "fused", huge))
    fine = evaluator.submit(Candidate(SHAPE, "fused", config("fused", device)))
    assert too_large.result(timeout=300).outcome in ("resource_limit", "compile_error")
    assert fine.result(timeout=300).outcome in ("ok", "slow")


def test_finals_and_the_dispatcher_give_times_near_the_searchs_own(
    evaluator: DeviceEvaluator, device: DeviceKey
) -> None:
    one = Candidate(SHAPE, "fused", config("fused", device))
    alone = evaluator.submit(one).result(timeout=300).objective_us
    assert alone is not None
    rounds = evaluator.confirm(one, rounds=10).result(timeout=300).rounds
    searched, dispatched = (sorted(column)[5] for column in zip(*rounds, strict=True))
    assert searched == pytest.approx(alone, rel=0.2)
    assert dispatched == pytest.approx(alone, rel=0.3)
