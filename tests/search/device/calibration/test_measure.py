"""calibration.measure: a repetition is a difference of two times, of launches whose results are right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from fake_gpu import FakeGpu

from kernels.device import DeviceKey
from kernels.launches.program import Program
from kernels.runtime.plan import LoadedProgram, Plan
from search.device.calibration.measure import check_result, measured, repetition_us
from search.device.calibration.probes import Probe, probes_of
from search.device.timing import BrokenMeasurementError, Launch

SMALL = probes_of(DeviceKey("sm_90", 2), 1 << 20, share=1 / 64)
VECTOR = next(probe for probe in SMALL if probe.name == "vector")
FIXED_US, TRIP_US = 5.0, 0.25
HOST_US = 200.0  # of a replay's submission


@dataclass(eq=False)
class CountingGpu(FakeGpu):
    """Computes what the probe must, and takes a time for the launch and one for each trip."""

    probe: Probe = VECTOR
    trip_us: float = TRIP_US

    def load(self, program: Program, tensors: Mapping[str, torch.Tensor]) -> LoadedProgram:
        return LoadedProgram(program, (), Plan((), 0))

    def launch(self, loaded: LoadedProgram, tensors: Mapping[str, torch.Tensor]) -> None:
        tensors["out"].copy_(self.probe.expected(_count(loaded.program, self.probe)))
        self.flaw(tensors["out"], 1)

    def capture(self, launches: Sequence[Launch]) -> Any:
        first = launches[0]
        assert isinstance(first, partial)
        return len(launches) * (FIXED_US + self.trip_us * _count(first.args[0].program, self.probe))

    def replay_us(self, graph: Any, count: int) -> list[float]:
        return [float(graph)] * count


def _count(program: Program, probe: Probe) -> int:
    value = program.calls[0].args.get("trips", len(program.calls))
    assert isinstance(value, int)
    return value


def test_what_a_launch_costs_is_no_part_of_a_repetition() -> None:
    assert repetition_us(VECTOR, CountingGpu()) == pytest.approx(TRIP_US)


def test_a_launch_is_all_of_what_a_kernel_takes_on_its_own() -> None:
    launch = next(probe for probe in SMALL if probe.name == "launch")
    assert repetition_us(launch, CountingGpu(probe=launch)) == pytest.approx(TRIP_US + FIXED_US / 16)


def test_a_wrong_result_is_no_measurement() -> None:
    def spoil(out: torch.Tensor, launches: int) -> None:
        out[3] += 1

    with pytest.raises(BrokenMeasurementError, match=r"^vector: 1 of 512 results are wrong"):
        repetition_us(VECTOR, CountingGpu(flaw=spoil))


def test_repetitions_that_take_no_time_are_no_measurement() -> None:
    with pytest.raises(BrokenMeasurementError, match="repetitions took 5"):
        repetition_us(VECTOR, CountingGpu(trip_us=0.0))


def test_a_host_that_submits_slower_than_a_launch_runs_is_not_what_is_timed() -> None:
    @dataclass(eq=False)
    class SlowHostGpu(CountingGpu):
        def replay_us(self, graph: Any, count: int) -> list[float]:
            return [max(HOST_US, float(graph))] * count

    assert repetition_us(VECTOR, SlowHostGpu()) == pytest.approx(TRIP_US)


def test_each_probe_is_told_when_it_is_there() -> None:
    heard: list[tuple[str, float]] = []
    found = measured([VECTOR], CountingGpu(), lambda probe, us: heard.append((probe.name, us)))
    assert heard == list(found.items())
    assert dict(heard) == pytest.approx({"vector": TRIP_US})


def test_links_are_compared_as_the_numbers_they_are() -> None:
    chase = next(probe for probe in SMALL if probe.name == "load_cached")
    check_result(chase, 16, chase.expected(16))
    with pytest.raises(BrokenMeasurementError, match="64 of 64"):
        check_result(chase, 16, chase.expected(32))
