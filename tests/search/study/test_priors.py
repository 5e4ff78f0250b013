"""search.study.priors: what a model likes of a device that it is of, and nothing of any other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from kernels.device import GFX950, DeviceKey
from kernels.problem import GemmShape
from search.gfx950.machine import machine_of
from search.space.legal_set import LegalSet, legal_set
from search.space.space import load_space
from search.study.priors import doubtful_on, estimates_us, favourites, sweep_points

SHAPE = GemmShape(16, 2112, 7168)
SPACE = load_space(Path(__file__).resolve().parents[3] / "configs" / "spaces" / "fused.yaml")


def legal(device: DeviceKey) -> dict[str, LegalSet]:
    return {"fused": legal_set(SPACE, SHAPE, device)}


@pytest.mark.parametrize("device", [GFX950, DeviceKey("gfx950", 128), DeviceKey("gfx950", 32)], ids=str)
def test_every_gfx950_has_favourites_and_points_that_come_last(device: DeviceKey) -> None:
    points = legal(device)
    assert favourites(points, SHAPE, device).first[0][0] == "fused"
    times = estimates_us(points, SHAPE, device)
    assert times is not None and np.isfinite(times).all()
    assert sweep_points(points, device, 0).total == len(points["fused"])


@pytest.mark.parametrize("device", [DeviceKey("sm_90", 132), DeviceKey("gfx942", 304)], ids=str)
def test_another_device_has_an_order_to_begin_with_and_no_model(device: DeviceKey) -> None:
    points = legal(device)
    assert machine_of(device) is None
    assert favourites(points, SHAPE, device).first[0][0] == "fused"
    assert not sweep_points(points, device, 0).last.all()


def test_no_favourite_is_doubtful() -> None:
    device = DeviceKey("sm_90", 132)
    liked = favourites(legal(device), SHAPE, device)
    frame = pd.DataFrame([config.to_dict() for _, config in (*liked.first, *liked.others)])
    assert not doubtful_on(device, "fused", frame).any()


def test_fewer_compute_units_take_longer() -> None:
    points = legal(GFX950)
    whole, part = (estimates_us(points, GemmShape(4096, 7168, 7168), DeviceKey("gfx950", cus)) for cus in (256, 32))
    assert whole is not None and part is not None
    assert (part > 2 * whole).all()
