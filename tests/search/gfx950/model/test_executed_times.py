"""search.gfx950.model.executed: predictions of whole candidates that were compiled and executed."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest

from kernels.device import GFX950
from kernels.families.fused import TileConfig
from kernels.launches.coverage import TileCoverage
from kernels.problem import GemmShape
from search.evaluation import Candidate
from search.evaluators.execution import execute_candidate
from search.gfx950.code.artifacts import ArtifactCache
from search.gfx950.machine import AITER, GPUMODE, MI355X, Machine
from search.gfx950.model.executed import Prediction, predict_works, tile_sharing

SMALL = GemmShape(16, 256, 256)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiled")


@functools.cache
def predicted(folder: Path, shape: GemmShape, config: TileConfig, machine: Machine = MI355X) -> Prediction:
    executed = execute_candidate(Candidate(shape, "fused", config), GFX950, ArtifactCache(folder), folder / "logs")
    return predict_works(executed.works(machine), shape, machine)


def test_with_one_step_two_stages_wait_for_the_load_no_less_than_one_stage(folder: Path) -> None:
    one, two = (predicted(folder, SMALL, TileConfig(16, 64, 256, num_stages=stages)) for stages in (1, 2))
    assert two.terms["latency_us"] >= one.terms["latency_us"]


def test_time_never_falls_as_m_rises_by_a_tile(folder: Path) -> None:
    config = TileConfig(16, 64, 256, num_stages=1)
    times = [predicted(folder, GemmShape(m, 256, 512), config).predicted_us for m in (1, 16, 17, 33)]
    assert times == sorted(times)


def test_integer_quantisation_takes_longer_than_the_conversion_instruction(folder: Path) -> None:
    by = {name: TileConfig(16, 64, 256, num_stages=1, quantizer=name) for name in ("hardware", "software")}
    busy = {name: predicted(folder, SMALL, config).terms["valu_us"] for name, config in by.items()}
    assert busy["software"] > 1.5 * busy["hardware"]


def test_a_prediction_names_its_harness_and_is_not_below_the_roofline(folder: Path) -> None:
    config = TileConfig(16, 64, 256, num_stages=1)
    for harness in (AITER, GPUMODE):
        found = predicted(folder, SMALL, config, Machine(harness=harness))
        assert found.model.endswith(f"-{harness.name}")
        assert found.predicted_us >= max(found.roofline_us, harness.launch_us)
        assert found.bound == "launch"


def test_tiles_of_one_column_share_weights_and_keeping_them_on_a_die_shares_more() -> None:
    # 8 x 8 tiles, 64 workgroups, 8 distinct columns. In turn, die x gets column x of every row; with 8 ranges a die
    # gets one row, so each die reads every column.
    pointers = {"b_ptr": "b", "a_ptr": "a"}
    turn = tile_sharing(pointers, *TileCoverage(128, 512, 16, 64).tiles(), 64)
    kept = tile_sharing(pointers, *TileCoverage(128, 512, 16, 64, num_xcds=8).tiles(), 64)
    assert turn.device == kept.device == {"b_ptr": 8 / 64, "a_ptr": 8 / 64}
    assert turn.dies == {"b_ptr": 8 / 64, "a_ptr": 64 / 64}
    assert kept.dies == {"b_ptr": 64 / 64, "a_ptr": 8 / 64}


def test_slices_of_k_share_nothing() -> None:
    tile, split = np.zeros(4, np.int64), np.arange(4)
    assert tile_sharing({"b_ptr": "b"}, tile, tile, split, 4).device == {"b_ptr": 1.0}
