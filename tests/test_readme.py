"""The README's example, as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from kernels.device import GFX950
from kernels.families.fused import TileConfig
from kernels.problem import GemmShape
from kernels.tables.file import write_table
from kernels.tables.rows import Made, TableRow, TunedTable

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
MADE = Made(date(2026, 11, 29), "3.9.0", "2.13.0", "0" * 12, "by hand", "none")


def example() -> tuple[list[str], str]:
    """The commands, and the script that the last of them runs."""
    found = re.search(r"```\n([^`]*python mlp\.py\n)```\n\n```python\n(# mlp\.py\n[^`]*)```", README)
    assert found is not None
    return found[1].splitlines(), found[2]


def run(command: list[str], folder: Path, **variables: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    hidden = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=folder, env=kept | hidden | variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout + done.stderr


def serves_both(folder: Path, table: str) -> bool:
    """Run the script with ``table``; whether it has rows for both layers."""
    run([sys.executable, "mlp.py"], folder, MXFP4_TABLES=table, MXFP4_MISSES="misses.txt")
    return not (folder / "misses.txt").exists()


def test_the_example_has_at_most_thirty_lines_and_runs_on_its_table(tmp_path: Path) -> None:
    commands, script = example()
    assert len(commands) + len(script.splitlines()) <= 30
    (tmp_path / "mlp.py").write_text(script)
    shapes = [GemmShape.parse(word) for word in commands[0].split() if re.fullmatch(r"\d+x\d+x\d+", word)]
    rows = [
        TableRow(shape.M, shape.N, shape.K, "fused", TileConfig(), "measured", True, MADE, time_us=1.0)
        for shape in shapes
    ]
    write_table(tmp_path / "mlp.yaml", TunedTable(GFX950, tuple(rows)))
    assert serves_both(tmp_path, "mlp.yaml")
    write_table(tmp_path / "half.yaml", TunedTable(GFX950, tuple(rows[:1])))
    assert not serves_both(tmp_path, "half.yaml")


@pytest.mark.slow
def test_the_example_sweeps_exports_and_runs(tmp_path: Path) -> None:
    commands, script = example()
    (tmp_path / "mlp.py").write_text(script)
    for command in commands[:-1]:
        program, *words = command.partition("#")[0].split()
        assert program == "run_search.py"
        few = ["--trials", "2", "--target", "gfx950", "--families", "fused"] if words[0] == "sweep" else []
        run([sys.executable, str(ROOT / program), *words, *few], tmp_path)
    assert serves_both(tmp_path, "mlp.yaml")
