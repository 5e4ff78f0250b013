"""How far a row may serve: by hand-made measurements, and by the model at the shapes that were reported."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest
from result_rows import measured, results

from kernels.device import GFX950, DeviceKey
from kernels.families import FAMILIES
from kernels.families.defaults import default_choice
from kernels.families.fused import SplitKWorkspaceConfig, TileConfig
from kernels.families.staged_ck import StagedCkConfig
from kernels.problem import GemmShape
from kernels.tables import lookup
from kernels.tables.rows import Made, TableRow, TunedTable
from search.evaluation import Value
from search.study.reach import GREATEST_M, AgainstDefault

MADE = Made(date(2026, 11, 29), "3.9.0", "2.13.0", "0" * 12, "gfx950-t2", "none")
SMALL = TileConfig(BLOCK_M=4, BLOCK_N=16, BLOCK_K=1024, num_stages=3, quantizer="software")
SMALL_SPLIT = SplitKWorkspaceConfig(BLOCK_M=8, BLOCK_N=128, BLOCK_K=256, num_stages=2, split_k=14)
SM_90 = DeviceKey("sm_90", 132)


def row(M: int = 16, config: TileConfig = SMALL) -> TableRow:
    return TableRow(M, 2112, 7168, "fused", config, "predicted", True, MADE, predicted_us=10.0)


def trial(M: int, us: float, device: DeviceKey, point: tuple[str, TileConfig]) -> dict[str, Value]:
    family, config = point
    return measured(
        us, M=M, arch=device.arch, cu_count=device.cu_count, family=family,
        source_hash=FAMILIES[family].source_hash, **config.to_dict(),
    )  # fmt: skip


def both(M: int, row_us: float, default_us: float, device: DeviceKey) -> list[dict[str, Value]]:
    default = default_choice(GemmShape(M, 2112, 7168), device)
    return [trial(M, row_us, device, ("fused", SMALL)), trial(M, default_us, device, default)]


def test_by_the_model_a_row_of_small_tiles_does_not_serve_prefill() -> None:
    best = replace(row(8), family="fused_splitk_workspace", config=SMALL_SPLIT)  # as in public logs of this shape
    reached = AgainstDefault(GFX950).with_reach(best)
    assert reached.serves_to is not None and 8 <= reached.serves_to < 512
    assert lookup(TunedTable(GFX950, (reached,)), GemmShape(8192, 2112, 7168)).how == "miss"
    judge = AgainstDefault(GFX950)
    assert judge.no_slower(best, reached.serves_to)
    assert not judge.no_slower(best, 512)


def test_the_default_itself_serves_wherever_it_is_the_default() -> None:
    _, config = default_choice(GemmShape(4096, 2112, 7168), GFX950)
    default = TableRow(4096, 2112, 7168, "staged_triton", config, "predicted", True, MADE, predicted_us=10.0)
    assert AgainstDefault(GFX950).with_reach(default).serves_to == GREATEST_M


@pytest.mark.parametrize("device", [SM_90, GFX950])
def test_a_measurement_decides_where_there_is_one_whatever_the_model_says(device: DeviceKey) -> None:
    trials = [*both(64, 20.0, 25.0, device), *both(1024, 90.0, 30.0, device)]
    comparison = AgainstDefault.of(results(*trials), TunedTable(device, (row(),)))
    assert comparison.no_slower(row(), 64) is True
    assert comparison.no_slower(row(), 1024) is False


def test_without_a_model_only_measured_m_extend_the_reach() -> None:
    table = TunedTable(SM_90, (row(),))
    assert AgainstDefault(SM_90).with_reach(row()) == row()
    trials = [*both(4, 5.0, 4.0, SM_90), *both(8, 5.0, 6.0, SM_90), *both(64, 20.0, 25.0, SM_90)]
    near = AgainstDefault.of(results(*trials), table).with_reach(row())
    assert (near.serves_from, near.serves_to) == (8, 64)
    trials += both(100, 90.0, 30.0, SM_90)
    assert AgainstDefault.of(results(*trials), table).with_reach(row()).serves_to == 64


def test_an_end_of_which_nothing_tells_stays_as_a_person_wrote_it() -> None:
    written = replace(row(), serves_from=2, serves_to=300)
    assert AgainstDefault(SM_90).with_reach(written) == written


def test_where_a_configuration_cannot_run_it_does_not_serve() -> None:
    machine_code = replace(row(), family="staged_ck", config=StagedCkConfig())
    assert AgainstDefault(SM_90).no_slower(machine_code, 32) is False
