"""search.gfx950.model.work and tile_work: counts by hand, pairing with the programs, agreement with the compiler."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels.families import FAMILIES
from kernels.families.fused import TileConfig
from kernels.families.stages import Gemm
from kernels.problem import GemmShape
from search.gfx950.code.calls import specialize
from search.gfx950.machine import MI355X
from search.gfx950.model.families import estimate_calls, is_modelled
from search.gfx950.model.formula import total_us
from search.gfx950.model.static_counts import static_counts
from search.gfx950.model.tile_work import TileWork
from search.gfx950.model.work import gemm_work

SHAPE = GemmShape(16, 2112, 7168)
MODELLED = {family for family in FAMILIES if is_modelled(family)}


def test_counts_the_grid_the_steps_and_the_bytes_of_a_split_gemm() -> None:
    work = gemm_work(Gemm(TileConfig(16, 64, 256), split_k=8), SHAPE, MI355X)
    assert float(work.workgroups) == 33 * 8
    assert float(work.steps) == 4  # 28 steps of 256, at most 4 to a split
    # A step: 16 rows of 256 bf16, 64 columns of 128 B of codes and 8 scales.
    assert float(work.feed_bytes) == 4 * (16 * 512 + 64 * 136)
    assert float(work.read_bytes) == 16 * 7168 * 2 + 2112 * 7168 // 2 + 2112 * 7168 // 32
    assert float(work.written_bytes) == 8 * 16 * 2112 * 4
    assert work.atomic_bytes == 0


def test_rows_beyond_the_problem_are_not_loaded() -> None:
    work = gemm_work(Gemm(TileConfig(64, 64, 256)), GemmShape(4, 64, 256), MI355X)
    assert float(work.feed_bytes) == 4 * 512 + 64 * 136
    assert float(work.written_bytes) == 4 * 64 * 2


def test_atomic_splits_write_nothing_else() -> None:
    work = gemm_work(Gemm(TileConfig(16, 64, 256), split_k=4, atomic=True), SHAPE, MI355X)
    assert (float(work.atomic_bytes), work.written_bytes) == (4 * 16 * 2112 * 4, 0.0)


def test_only_what_a_library_chooses_is_not_modelled() -> None:
    assert FAMILIES.keys() - MODELLED == {"aiter"}


@pytest.mark.usefixtures("code_objects")
@pytest.mark.parametrize("family", sorted(MODELLED))
@pytest.mark.parametrize("split_k", [1, 8])
def test_every_family_is_modelled_launch_by_launch(family: str, split_k: int) -> None:
    config_type = FAMILIES[family].config_type
    config = FAMILIES[family].config({"split_k": split_k} if hasattr(config_type, "split_k") else {})
    calls = FAMILIES[family].program(SHAPE, config).calls
    works = estimate_calls(family, config.to_dict(), SHAPE, MI355X)
    assert [float(work.workgroups) for work in works] == [call.workgroups for call in calls]
    waves = [call.options["num_warps"] if call.options else call.kernel.threads / 64 for call in calls]
    assert [float(work.waves) for work in works] == waves


def columns(family: str, count: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    config = FAMILIES[family].config_type().to_dict()
    choices: dict[str, list[Any]] = {
        "BLOCK_M": [16, 32, 64, 128], "BLOCK_N": [32, 64, 128], "BLOCK_K": [128, 256, 512], "split_k": [1, 2, 7, 8],
        "num_warps": [2, 4, 8], "num_stages": [1, 2, 3], "quantizer": ["hardware", "software"],
        "waves_m": [1, 2], "waves_n": [2, 4], "log2_k_split": [0, 1, 2], "quantize_kernel": ["triton", "hip"],
        "QUANT_THREADS": [64, 256], "QUANT_GROUPS": [1, 2, 4], "QUANT_VECTOR": [8, 32],
    }  # fmt: skip
    return {name: rng.choice(choices.get(name, [value]), count) for name, value in config.items()}


@pytest.mark.parametrize("family", sorted(MODELLED))
def test_columns_give_the_times_of_their_rows(family: str) -> None:
    table = columns(family, 40)
    together = np.broadcast_to(total_us(estimate_calls(family, table, SHAPE, MI355X), MI355X), 40)
    for index in range(40):
        row = {name: values[index].item() for name, values in table.items()}
        assert float(total_us(estimate_calls(family, row, SHAPE, MI355X), MI355X)) == pytest.approx(together[index])


def test_a_hundred_thousand_configurations_are_ranked_at_once() -> None:
    table = columns("staged_triton", 100_000)
    times = np.asarray(total_us(estimate_calls("staged_triton", table, SHAPE, MI355X), MI355X))
    assert times.shape == (100_000,)
    assert np.isfinite(times).all()


def test_software_quantisation_costs_more_vector_work_and_none_costs_least() -> None:
    hardware, software = (TileConfig(16, 64, 256, quantizer=name) for name in ("hardware", "software"))
    stages = (Gemm(hardware, staged=True), Gemm(hardware), Gemm(software))
    costs = [float(gemm_work(stage, SHAPE, MI355X).valu_clks) for stage in stages]
    assert costs == sorted(costs)
    assert costs[2] > 2 * costs[1]


def test_deep_pipelines_of_short_loops_quantise_in_vain() -> None:
    # One step of data: the code of two peeled steps still runs.
    shallow = gemm_work(Gemm(TileConfig(16, 64, 512, num_stages=2)), GemmShape(16, 2112, 512), MI355X)
    deep = gemm_work(Gemm(TileConfig(16, 64, 512, num_stages=3)), GemmShape(16, 2112, 512), MI355X)
    assert float(deep.valu_clks) > 1.5 * float(shallow.valu_clks)
    assert deep.mfma == shallow.mfma


def test_a_tile_that_spills_is_slower() -> None:
    fits = TileWork(16, 64, 256, 4, 2, 16, "hardware")
    spills = TileWork(128, 64, 1024, 8, 2, 32, "hardware")
    assert fits.vgprs < fits.vgpr_limit(MI355X)
    assert spills.vgprs > spills.vgpr_limit(MI355X) == 256
    spilling = TileConfig(128, 64, 1024, num_warps=8, matrix_instr_nonkdim=32)
    work = gemm_work(Gemm(spilling), GemmShape(128, 64, 1024), MI355X)
    assert work.vmem_clks > 0


@pytest.mark.parametrize(
    "family, changes",
    [
        ("fused_splitk_workspace", {"split_k": 8}),
        ("fused_splitk_workspace", {"split_k": 4, "BLOCK_N": 128, "quantizer": "software"}),
        ("staged_triton", {"BLOCK_M": 64, "BLOCK_N": 128}),
    ],
)
def test_estimates_are_near_what_the_compiler_makes(family: str, changes: dict[str, Any]) -> None:
    config = FAMILIES[family].config_type(**changes)
    program = FAMILIES[family].program(SHAPE, config)
    works = estimate_calls(family, config.to_dict(), SHAPE, MI355X)
    work, call = next((w, c) for w, c in zip(works, program.calls, strict=True) if "b" in c.args.values())
    counts = static_counts(specialize(program, call).compile().assembly).executed(float(work.steps))
    assert float(work.mfma_clks) == pytest.approx(counts["mfma_clks"], rel=0.01)
    assert float(work.valu_clks) == pytest.approx(counts["valu_clks"], rel=0.35)
