"""kernels.families.sources: the hash changes with what decides the code, and with nothing else."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kernels
from kernels.families import FAMILIES, study_hash
from kernels.families import sources as module
from kernels.families.sources import STUDY

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sources that a test may edit, hashed in place of the installed ones."""
    folder = tmp_path / "kernels"
    shutil.copytree(Path(kernels.__file__).parent, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(module, "files", lambda package: folder)
    return folder


def current() -> dict[str, str]:
    return {name: module.source_hash.__wrapped__(family.files) for name, family in FAMILIES.items()}


def changed(before: dict[str, str]) -> set[str]:
    return {name for name, value in current().items() if value != before[name]}


def test_is_twelve_hexadecimal_digits_and_the_same_each_time() -> None:
    assert all(re.fullmatch("[0-9a-f]{12}", value) for value in (*current().values(), study_hash()))
    assert current() == {name: family.source_hash for name, family in FAMILIES.items()}


@pytest.mark.parametrize("name", ["triton/gemm.py", "triton/quantize.py", "families/stages.py", "config.py"])
def test_changes_with_a_source_that_decides_the_code(copy: Path, name: str) -> None:
    before = current()
    (copy / name).write_text((copy / name).read_text() + "\nX = 1\n")
    assert {"fused", "fused_splitk_atomic", "fused_splitk_workspace", "staged_triton"} <= changed(before)


@pytest.mark.parametrize("name", ["hip/quantize.hip", "hip/mxfp4.h", "families/staged_hip.py", "rocm/compiler.py"])
def test_sources_of_native_kernels_do_not_make_triton_kernels_stale(copy: Path, name: str) -> None:
    before = current()
    (copy / name).write_text("changed = 1")
    assert "staged_hip" in changed(before) <= {"staged_hip", "staged_ck"}


def test_a_family_names_the_file_that_holds_it() -> None:
    for name in ("staged_triton", "staged_hip", "staged_ck", "aiter"):
        assert f"families/{name}.py" in FAMILIES[name].files


def test_every_hip_source_is_named() -> None:
    there = {f"hip/{path.name}" for path in (ROOT / "kernels" / "hip").iterdir()}
    assert there <= set(FAMILIES["staged_hip"].files)


def test_ignores_other_sources_line_ends_comments_and_docstrings(copy: Path) -> None:
    before = current()
    (copy / "mxfp4" / "reference.py").write_text("")
    source = (copy / "config.py").read_text()
    prose = re.sub(r'"""What the configuration of every family', '"""Whatever a configuration of a family', source)
    assert prose != source
    (copy / "config.py").write_bytes(f"# a comment\n\n{prose}# another\n".replace("\n", "\r\n").encode())
    assert changed(before) == set()


def test_a_text_that_is_no_docstring_counts(copy: Path) -> None:
    before = current()
    path = copy / "config.py"
    path.write_text(path.read_text().replace('is less than 1"', 'is below 1"'))
    assert "fused" in changed(before)


def test_rearrangements_lead_to_the_present_sources() -> None:
    """An entry whose kernels have changed since says nothing any more: remove it, or lead it to what is shown."""
    present = {name: family.source_hash for name, family in FAMILIES.items()} | {STUDY: study_hash()}
    for name, hashes in module.REARRANGED.items():
        assert {module.settled(recorded, name) for recorded in hashes} == {present[name]}


def test_rearrangements_are_followed_to_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REARRANGED", {"fused": ("24207ede2736", "ef7a8ff99334", "0123456789ab")})
    assert module.settled("24207ede2736", "fused") == "0123456789ab"
    assert module.settled("24207ede2736", "staged_hip") == "24207ede2736"
    assert module.settled("ffffffffffff", "fused") == "ffffffffffff"


IMPORTS = """
import importlib, importlib.abc, pkgutil, sys
if sys.version_info >= (3, 11):
    vars(importlib.abc).pop("Traversable", None)  # as in Python 3.14
    vars(importlib.abc).pop("__getattr__", None)  # of Python 3.12, which warns
import kernels, search
packages = {"kernels.": kernels.__path__, "search.": search.__path__}
names = [item.name for prefix, path in packages.items() for item in pkgutil.walk_packages(path, prefix)]
for name in names:
    importlib.import_module(name)
print(len(names))
"""


def test_no_module_needs_what_newer_pythons_have_removed() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    assert int(done.stdout) > 100
