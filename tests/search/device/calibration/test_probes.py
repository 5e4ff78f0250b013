"""calibration.probes: every kernel computes what it must, executed from its machine code and interpreted."""

from __future__ import annotations

import pytest
import torch
from calibrated import PROBES, executed_probe

from kernels.device import GFX950, DeviceKey
from search.device.calibration.probes import PIECE, Probe, parts, probes_of

NAMES = [probe.name for probe in PROBES]


@pytest.mark.parametrize("probe", PROBES, ids=NAMES)
def test_the_first_workgroup_writes_what_a_launch_must(probe: Probe) -> None:
    for count, out in executed_probe(probe.name).out.items():
        expected = probe.expected(count)
        written = torch.from_numpy(out)
        first = min(len(expected), 64 if "load" in probe.name else PIECE if "re" in probe.name else 256)
        assert torch.equal(written[:first].view(torch.int32), expected[:first].view(torch.int32))


def test_a_chase_reaches_every_place_of_its_ring_once() -> None:
    probe = next(probe for probe in PROBES if probe.name == "load_cached")
    ring = probe.tensors(16)["ring"].view(torch.int32).reshape(-1, 64)
    place, seen = 0, set()
    for _ in range(len(ring)):
        place = int(ring[place, 0]) // 64
        seen.add(place)
    assert seen == set(range(len(ring)))


def test_memory_is_read_beyond_the_cache_and_the_cache_is_not_left() -> None:
    cache = 256 << 20
    sizes = {
        probe.name: [probe.program(count).buffer("ones").bytes for count in probe.counts]
        for probe in probes_of(GFX950, cache) if probe.name.startswith("read_")
    }  # fmt: skip
    assert min(sizes["read_memory_256"]) > 1.8 * cache
    assert 32 << 20 < min(sizes["read_cache"]) < max(sizes["read_cache"]) < cache  # more than all L2 together
    assert max(sizes["read_unit"]) == 1 << 20


def test_a_cache_as_small_as_an_h200s_holds_what_is_read_from_it() -> None:
    (read,) = (probe for probe in probes_of(DeviceKey("sm_90", 132), 50 << 20) if probe.name == "read_cache")
    assert max(read.program(count).buffer("ones").bytes for count in read.counts) < 50 << 20


def test_only_devices_with_a_scaled_fp4_instruction_multiply() -> None:
    assert "matrix" in NAMES
    assert "matrix" not in [probe.name for probe in probes_of(DeviceKey("sm_90", 132), 50 << 20)]


def test_memory_is_read_by_an_eighth_of_the_units_up_to_all() -> None:
    assert parts(256) == (32, 64, 128, 192, 256)
    assert parts(4) == (1, 2, 3, 4)
