"""setup_venv.sh: what a link leads to is not emptied."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "setup_venv.sh"


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_symbolic_link_is_refused_in_one_line_and_its_target_kept(tmp_path: Path, slash: str) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.mkdir()
    (target / "mine").touch()
    link.symlink_to(target)
    done = subprocess.run(
        ["sh", str(SCRIPT), sys.executable, f"{link}{slash}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == f"error: {link}{slash} is a symbolic link; remove it, or name another folder with VENV=...\n"
    assert (target / "mine").exists() and list(target.iterdir()) == [target / "mine"]


def test_on_an_amd_machine_a_python_without_torch_is_refused_before_anything_is_installed(tmp_path: Path) -> None:
    python, kfd = tmp_path / "python", tmp_path / "kfd"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')  # sees the standard library only
    python.chmod(0o755)
    kfd.touch()
    done = subprocess.run(
        ["sh", str(SCRIPT), str(python), str(tmp_path / "venv")],
        env={"PATH": "/usr/bin:/bin", "KFD": str(kfd)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "has no torch; give one that has it with PYTHON=..." in done.stderr
    assert not (tmp_path / "venv").exists()


def test_an_active_environment_is_made_anew_by_the_python_that_it_was_made_from(tmp_path: Path) -> None:
    base = Path(sys.base_prefix) / "bin" / "python3"
    if subprocess.run([base, "-c", "import torch"], capture_output=True, check=False).returncode == 0:
        pytest.skip(f"{base} has torch: the script would go on and install")
    venv, kfd = tmp_path / "venv", tmp_path / "kfd"
    subprocess.run([base, "-m", "venv", "--without-pip", venv], check=True)
    kfd.touch()
    done = subprocess.run(
        ["sh", str(SCRIPT), str(venv / "bin" / "python3"), str(venv)],
        env={"PATH": "/usr/bin:/bin", "KFD": str(kfd)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr.startswith(f"error: this machine has an AMD GPU, and {base} has no torch;")


def written_pth(packages: Path) -> str:
    """What the script writes so that an environment sees ``packages`` of PYTHON."""
    snippet = re.search(r"-c '(import sys\nfor path.*?)' >\"\$site/parent.pth\"", SCRIPT.read_text(), re.DOTALL)
    assert snippet is not None
    return subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path[:] = [{str(packages)!r}]\n{snippet[1]}"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip


def test_what_python_imports_from_an_editable_install_its_environment_imports_too(tmp_path: Path) -> None:
    packages, project = tmp_path / "x-packages", tmp_path / "project"
    packages.mkdir()
    project.mkdir()
    (project / "editable_aiter.py").write_text("PLACE = 'project'\n")
    (packages / "editable.pth").write_text(f"{project}\n")
    (tmp_path / "site").mkdir()
    (tmp_path / "site/parent.pth").write_text(written_pth(packages))
    probe = f"import site; site.addsitedir({str(tmp_path / 'site')!r}); import editable_aiter as e; print(e.PLACE)"
    assert (
        subprocess.run([sys.executable, "-I", "-S", "-c", probe], capture_output=True, text=True).stdout == "project\n"
    )


def test_where_pip_builds_a_package_apart_the_setuptools_of_python_leaves_the_path(tmp_path: Path) -> None:
    packages = tmp_path / "x-packages"
    packages.mkdir()
    (tmp_path / "site").mkdir()
    (tmp_path / "site/parent.pth").write_text(written_pth(packages))
    # As pip's build environment does: what a second reading of the folder adds to the path is taken off it.
    probe = f"""
import site, sys
site.addsitedir({str(tmp_path / "site")!r})
first = len(sys.path)
site.addsitedir({str(tmp_path / "site")!r}, known_paths=set())
print({str(packages)!r} in sys.path[:first], {str(packages)!r} in sys.path[first:])
"""
    assert (
        subprocess.run([sys.executable, "-I", "-S", "-c", probe], capture_output=True, text=True).stdout
        == "True True\n"
    )


def test_of_what_python_has_torch_and_triton_are_pinned_and_an_old_numpy_is_not(tmp_path: Path) -> None:
    for name, version in (("numpy", "1.26.4"), ("torch", "2.10.0+rocm7.1"), ("triton_rocm", "3.6.0")):
        (tmp_path / f"{name}-{version}.dist-info").mkdir()
        (tmp_path / f"{name}-{version}.dist-info/METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    (tmp_path / "constraints.txt").write_text("torch==2.13.0\nnumpy==2.4.0\nruff==0.14\n")
    snippet = re.search(r"<<'PY'\n(.*?)\nPY\n", SCRIPT.read_text(), re.DOTALL)
    assert snippet is not None
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.append({str(tmp_path)!r})\n{snippet[1]}"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["ruff==0.14", "torch==2.10.0+rocm7.1", "triton-rocm==3.6.0"]
