"""The notebook of docs/ runs from its first cell to its last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "tune.ipynb"


def test_the_notebook_runs_and_shows_trials_and_winners(tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    pytest.importorskip("plotly")
    notebook: Any = pytest.importorskip("nbformat").read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = "".join(str(cell.get("outputs", "")) for cell in notebook.cells)
    assert "us predicted" in outputs and "'M': 'logical elements'" in outputs
    assert (tmp_path / "report.html").is_file()


def test_it_is_kept_without_outputs() -> None:
    text = NOTEBOOK.read_text()
    assert '"outputs": []' in text and '"execution_count": null' in text and "image/png" not in text
