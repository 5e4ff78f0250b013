"""kernels.source_hash: the hash changes with the kernels and with nothing else."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kernels
from kernels import source_hash as module
from kernels.source_hash import NATIVE_SOURCES, TRITON_SOURCES


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sources that a test may edit, hashed in place of the installed ones."""
    folder = tmp_path / "kernels"
    shutil.copytree(Path(kernels.__file__).parent, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(module, "files", lambda package: folder)
    return folder


def current(patterns: tuple[str, ...] = NATIVE_SOURCES) -> str:
    return module.source_hash.__wrapped__(patterns)


def test_is_twelve_hexadecimal_digits_and_the_same_each_time() -> None:
    assert re.fullmatch("[0-9a-f]{12}", module.source_hash())
    assert current() == module.source_hash()


@pytest.mark.parametrize("name", ["triton_fused.py", "triton_programs.py", "config.py"])
def test_changes_with_a_source_that_decides_the_code(copy: Path, name: str) -> None:
    before = current(), current(TRITON_SOURCES)
    (copy / name).write_text((copy / name).read_text() + "\nX = 1\n")
    assert current() != before[0]
    assert current(TRITON_SOURCES) != before[1]


@pytest.mark.parametrize("name", ["native.py", "hip/quantize.hip", "hip/mxfp4.h", "native_programs.py"])
def test_sources_of_native_kernels_do_not_make_triton_kernels_stale(copy: Path, name: str) -> None:
    (copy / "hip").mkdir(exist_ok=True)
    before = current(), current(TRITON_SOURCES)
    (copy / name).write_text("changed")
    assert (current() != before[0]) == (name != "native.py")
    assert current(TRITON_SOURCES) == before[1]


def test_ignores_other_sources_and_line_ends(copy: Path) -> None:
    before = current()
    (copy / "reference.py").write_text("")
    (copy / "config.py").write_bytes((copy / "config.py").read_bytes().replace(b"\n", b"\r\n"))
    assert current() == before


def test_new_kernel_file_changes_the_hash(copy: Path) -> None:
    before = current()
    (copy / "triton_new.py").write_text("")
    assert current() != before


def test_rearrangements_lead_to_the_present_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    # Where the kernels have changed since, an entry says nothing any more and is to be removed.
    assert set(module.REARRANGED.values()) <= {module.source_hash(TRITON_SOURCES), module.source_hash()}
    monkeypatch.setattr(module, "REARRANGED", {"24207ede2736": "ef7a8ff99334"})
    assert [module.settled(known) for known in ("24207ede2736", "0123456789ab")] == ["ef7a8ff99334", "0123456789ab"]


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
    root = Path(kernels.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", IMPORTS], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    assert int(done.stdout) > 100
