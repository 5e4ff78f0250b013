"""The GPU MODE submission: self-contained, of the table's configurations, and right."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
import yaml

from kernels.device import GFX950, DeviceKey
from kernels.errors import InputError
from kernels.families import FAMILIES
from kernels.families.fused import SplitKAtomicConfig, SplitKWorkspaceConfig, TileConfig
from kernels.families.fused_splitk_ticket import SplitKTicketConfig
from kernels.families.staged_hip import StagedHipConfig
from kernels.families.staged_triton import StagedConfig
from kernels.problem import GemmShape
from kernels.tables.rows import Made, TableRow, TunedTable
from search.formats.gpumode import BENCHMARK_SHAPES, TEST_SHAPES, read, recognises, render_submission

ROOT = Path(__file__).resolve().parents[3]
RUNNER = Path(__file__).with_name("run_submission.py")
MADE = Made(date(2026, 11, 29), "3.9.0", "2.13.0", "0" * 12, "by hand", "none")
# Tiles as large as they may be: the interpreter's time goes with the number of steps, not with their size.
CHOSEN: dict[str, tuple[str, TileConfig]] = {
    "4x2880x512": ("fused", TileConfig(BLOCK_M=4, BLOCK_N=256, BLOCK_K=512)),
    "16x2112x7168": ("fused_splitk_workspace", SplitKWorkspaceConfig(BLOCK_N=256, BLOCK_K=1024, split_k=4)),
    "32x4096x512": ("fused_splitk_atomic", SplitKAtomicConfig(BLOCK_M=32, BLOCK_N=256, BLOCK_K=256, split_k=2)),
    "32x2880x512": ("fused_splitk_ticket", SplitKTicketConfig(BLOCK_M=32, BLOCK_N=256, BLOCK_K=256, split_k=2)),
    "64x7168x2048": ("staged_triton", StagedConfig(BLOCK_M=64, BLOCK_N=256, BLOCK_K=1024, split_k=2)),
    "256x3072x1536": ("staged_triton", StagedConfig(BLOCK_M=256, BLOCK_N=256, BLOCK_K=512, num_warps=8)),
}
QUICK = ("4x2880x512", "32x4096x512", "32x2880x512", "256x3072x1536", "16x3072x1536")  # the last is only tested


def table(leave_out: str = "") -> TunedTable:
    rows = []
    for text, (family, config) in CHOSEN.items():
        shape = GemmShape.parse(text)
        exact = FAMILIES[family].deterministic
        rows.append(TableRow(shape.M, shape.N, shape.K, family, config, "predicted", exact, MADE, predicted_us=5.0))
    return TunedTable(GFX950, tuple(row for row in rows if str(row.shape) != leave_out))


def run(tmp_path: Path, *shapes: str) -> dict[str, int]:
    path = tmp_path / "submission.py"
    path.write_text(render_submission(table()))
    done = subprocess.run(
        [sys.executable, str(RUNNER), str(path), *shapes],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(json.loads(line) for line in done.stdout.splitlines())


def test_the_submission_computes_the_reference(tmp_path: Path) -> None:
    assert run(tmp_path, *QUICK) == dict.fromkeys(QUICK, 0)


@pytest.mark.slow
def test_the_submission_computes_every_shape_of_the_problem(tmp_path: Path) -> None:
    shapes = [str(shape) for shape in (*BENCHMARK_SHAPES, *TEST_SHAPES)]
    assert run(tmp_path, *shapes) == dict.fromkeys(shapes, 0)


def test_the_submission_imports_torch_and_triton_alone() -> None:
    tree = ast.parse(render_submission(table()))
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(str(node.module))
    assert imported == {"torch", "triton", "triton.language", "triton.language.target_info"}


def test_the_submission_holds_only_the_kernels_it_needs_each_once_callees_first() -> None:
    tree = ast.parse(render_submission(table()))
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert len(functions) == len(set(functions))
    assert functions[-1] == "custom_kernel"
    known: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            used = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
            assert used & set(functions) <= known, node.name
            known.add(node.name)
    only_fused = ast.parse(render_submission(fused_table()))
    names = {node.name for node in only_fused.body if isinstance(node, ast.FunctionDef)}
    assert "fused_gemm_kernel" in names and not names & {"staged_gemm_kernel", "zero_kernel"}


def fused_table() -> TunedTable:
    shapes = (*BENCHMARK_SHAPES, *TEST_SHAPES)
    return TunedTable(
        GFX950,
        tuple(
            TableRow(s.M, s.N, s.K, "fused", TileConfig(), "predicted", True, MADE, predicted_us=5.0) for s in shapes
        ),
    )


def test_a_ranked_shape_without_a_row_is_an_error_that_says_what_to_sweep() -> None:
    with pytest.raises(InputError, match=r"no row for 16x2112x7168: .*sweep 16x2112x7168 and export"):
        render_submission(table(leave_out="16x2112x7168"))


def test_all_ranked_shapes_without_a_row_are_named_at_once() -> None:
    some = TunedTable(GFX950, tuple(row for row in table().rows if row.K in (512, 7168)))
    with pytest.raises(InputError) as caught:
        render_submission(some)
    assert str(caught.value) == ("no row for 64x7168x2048, 256x3072x1536: sweep 64x7168x2048 256x3072x1536 and export")


def test_a_row_of_a_family_that_is_not_triton_is_refused() -> None:
    first = table().rows[0]
    native = replace(first, family="staged_hip", config=StagedHipConfig(), deterministic=True)
    rows = (native, *table().rows[1:])
    with pytest.raises(InputError, match=rf"staged_hip of {first.shape}: its kernels are not written in Triton"):
        render_submission(TunedTable(GFX950, rows))


def test_a_table_of_another_architecture_is_refused() -> None:
    with pytest.raises(InputError, match="the table is for sm_90-132cu"):
        render_submission(TunedTable(DeviceKey("sm_90", 132)))


def test_the_shapes_are_those_of_the_projects_shape_file() -> None:
    content = yaml.safe_load((ROOT / "configs" / "shapes" / "gpumode.yaml").read_text())
    roles = {GemmShape(one["M"], one["N"], one["K"]): one["role"] for one in content["shapes"]}
    assert tuple(shape for shape in roles if roles[shape] == "benchmark") == BENCHMARK_SHAPES
    assert tuple(shape for shape in roles if roles[shape] == "test") == TEST_SHAPES


def test_an_exported_submission_is_read_back_with_every_configuration() -> None:
    reading = read(Path("submission.py"), render_submission(table()))
    found = {str(trial.shape): (trial.family, trial.config) for trial in reading.trials}
    assert {text: found[text] for text in CHOSEN} == CHOSEN
    assert len(reading.trials) == 10 and reading.left_out == ()
    assert {trial.time_us for trial in reading.trials} == {None}


def test_an_entry_that_was_changed_by_hand_is_left_out() -> None:
    text = render_submission(table())
    assert text.count("(16, 2, 1)") == 1  # 4096 columns in tiles of 256, K in 2 slices
    reading = read(Path("submission.py"), text.replace("(16, 2, 1)", "(17, 2, 1)"))
    assert [one.reason for one in reading.left_out] == ["not as exported from here (no family makes these launches)"]


def test_a_submission_of_another_making_is_recognised_and_said_to_hold_no_table() -> None:
    text = "import aiter\n\ndef custom_kernel(data):\n    return aiter.gemm_a4w4(*data)\n"
    assert recognises(Path("submission.py"), text)
    assert not recognises(Path("setup.py"), "import setuptools\n")
    (left_out,) = read(Path("submission.py"), text).left_out
    assert left_out.reason == "a submission whose configurations are not in a table PROGRAMS"
    with pytest.raises(ValueError, match="no Python"):
        read(Path("submission.py"), "def custom_kernel(:")
