"""search.device.measure on a GPU of the mind: wrong results are never timed, faults end the process."""

from __future__ import annotations

import pytest
import torch
from fake_gpu import FakeGpu, Flaw

from kernels.errors import ResourceLimitError
from kernels.families.fused import SplitKAtomicConfig, TileConfig
from kernels.problem import GemmShape
from search.device import check
from search.device.gpu import GpuFaultError
from search.device.measure import FinalTask, MeasureTask, StandBy, Task, measure, run_task, work
from search.device.timing import COLD, WARM, BrokenMeasurementError
from search.evaluation import Candidate, Evaluation, FinalTimes

SHAPE = GemmShape(5, 64, 192)
CANDIDATE = Candidate(SHAPE, "fused", TileConfig(quantizer="software"))


def judged(gpu: FakeGpu, **rest: object) -> Evaluation:
    return measure(MeasureTask(CANDIDATE, COLD, **rest), gpu)  # type: ignore[arg-type]


def test_a_right_candidate_is_timed_with_everything_that_makes_the_time_comparable() -> None:
    gpu = FakeGpu()
    result = judged(gpu)
    assert (result.outcome, result.evidence, result.objective_us) == ("ok", "measured", 20.0)
    facts = result.facts
    assert (facts["protocol"], facts["checked_on"], facts["deterministic"]) == ("cold-graph-v1", "device", True)
    assert (facts["time_lo_us"], facts["time_hi_us"], facts["mismatches"]) == (20.0, 20.0, 0)
    assert (facts["device_name"], facts["driver"], facts["clock_mhz"]) == ("Imaginary H200", "580.1", 1980)
    assert facts["gpu_notes"] == "power cap"
    assert isinstance(facts["rotated_bytes"], int) and facts["rotated_bytes"] > 2 * gpu.cache_bytes()
    assert isinstance(facts["host_launch_us"], float) and facts["host_launch_us"] > 0


def test_outputs_are_poisoned_before_each_of_two_seeds_and_three_repetitions() -> None:
    gpu = FakeGpu()
    judged(gpu)
    assert gpu.poisoned_outputs >= 5


def spoil(index: tuple[int, int], value: float) -> Flaw:
    def flaw(out: torch.Tensor, launches: int) -> None:
        out[index] = value

    return flaw


def unwritten(out: torch.Tensor, launches: int) -> None:
    out[3, 7:9] = torch.nan  # what the poison leaves


def second_seed_only(out: torch.Tensor, launches: int) -> None:
    if launches == 2:
        out[0, 0] += 1000


@pytest.mark.parametrize("flaw", [spoil((4, 63), 1e4), spoil((0, 0), float("nan")), unwritten, second_seed_only])
def test_a_wrong_candidate_is_recorded_and_never_timed(flaw: Flaw) -> None:
    gpu = FakeGpu(flaw)
    result = judged(gpu)
    assert result.outcome == "wrong_result"
    assert "values are no rounding of the sum" in result.reason
    assert result.objective_us is None
    assert (gpu.replayed, gpu.captured) == (0, [])


def test_a_result_that_changes_within_the_tolerance_is_not_deterministic(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = check.device_sum_bound
    monkeypatch.setattr(check, "device_sum_bound", lambda *sizes: exact(*sizes) + 64)  # several steps of bf16

    def flaw(out: torch.Tensor, launches: int) -> None:
        bits = out.view(torch.int16)
        bits[0, 0] ^= launches % 2  # one ulp or none

    result = judged(FakeGpu(flaw))
    assert (result.outcome, result.facts["deterministic"]) == ("ok", False)


def test_a_family_that_sums_in_any_order_is_never_called_deterministic() -> None:
    candidate = Candidate(SHAPE, "fused_splitk_atomic", SplitKAtomicConfig(quantizer="software"))
    assert measure(MeasureTask(candidate, COLD), FakeGpu()).facts["deterministic"] is False


def test_a_slow_candidate_is_stopped_and_says_so() -> None:
    result = judged(FakeGpu(kernel_us=50.0), best_us=20.0)
    assert (result.outcome, result.objective_us, result.evidence) == ("slow", 50.0, "measured")
    assert "20.00 us" in result.reason


def test_a_time_below_the_roofline_is_a_broken_measurement() -> None:
    result = judged(FakeGpu(kernel_us=0.1))
    assert result.outcome == "crashed"
    assert "broken measurement" in result.reason


def test_a_broken_context_ends_the_process() -> None:
    gpu = FakeGpu(fault=RuntimeError("an illegal memory access was encountered"), broken=True)
    with pytest.raises(GpuFaultError, match="illegal memory access"):
        judged(gpu)


@pytest.mark.parametrize(
    "fault, outcome",
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3 GiB"), "resource_limit"),
        (RuntimeError("Triton Error [CUDA]: out of memory"), "resource_limit"),
        (RuntimeError("Triton Error [CUDA]: invalid argument"), "illegal"),
        (RuntimeError("PassManager::run failed"), "compile_error"),
    ],
)
def test_an_error_that_leaves_the_context_whole_is_the_candidates_outcome(fault: RuntimeError, outcome: str) -> None:
    assert judged(FakeGpu(fault=fault)).outcome == outcome


def test_any_other_error_is_a_bug_and_raised() -> None:
    with pytest.raises(RuntimeError, match="shapes disagree"):
        judged(FakeGpu(fault=RuntimeError("shapes disagree")))


def test_too_much_shared_memory_is_a_resource_limit() -> None:
    refusal = ResourceLimitError("out of resource: shared memory, Required: 300000, Hardware limit: 232448")
    result = judged(FakeGpu(refusal=refusal))
    assert (result.outcome, result.facts["protocol"]) == ("resource_limit", "cold-graph-v1")


def test_a_process_opens_its_gpu_before_the_first_task_where_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def opening() -> FakeGpu:
        opened.append("GPU")
        return FakeGpu()

    monkeypatch.setattr("search.device.measure.this_gpu", opening)
    assert run_task(StandBy()).rounds == () and not opened  # type: ignore[union-attr]
    assert run_task(StandBy(opened=True)).rounds == () and opened == ["GPU"]  # type: ignore[union-attr]


def test_finals_time_every_candidate_once_a_round() -> None:
    others = tuple(Candidate(SHAPE, "fused", TileConfig(quantizer="software", GROUP_M=g)) for g in (1, 2, 4))
    answer = work(FinalTask(others, WARM, rounds=7), FakeGpu(kernel_us=12.0))
    assert isinstance(answer, FinalTimes)
    assert answer.rounds == ((12.0, 12.0, 12.0),) * 7


def test_finals_refuse_a_time_that_cannot_be() -> None:
    with pytest.raises(BrokenMeasurementError):
        work(FinalTask((CANDIDATE,), WARM, rounds=2), FakeGpu(kernel_us=0.0))


@pytest.mark.parametrize("task", [MeasureTask(CANDIDATE, COLD), FinalTask((CANDIDATE,), COLD, rounds=1)])
def test_a_graph_that_replays_stale_arguments_is_never_timed_and_its_process_ends(task: Task) -> None:
    gpu = FakeGpu(stale_replays=True)
    with pytest.raises(GpuFaultError, match=r"a replay differs .* in \d+ of \d+ outputs"):
        work(task, gpu)
    assert gpu.replayed == 0


def test_where_events_cost_time_a_sample_is_long_enough_in_whole_rounds() -> None:
    short = FakeGpu()
    judged(short)
    launches = short.captured[0]
    long = FakeGpu(least_sample_us=2.5 * 20.0 * launches)
    assert judged(long).objective_us == 20.0
    assert long.captured == [launches, 3 * launches]
