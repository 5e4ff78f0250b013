"""Dependencies point one way, run_search -> search -> kernels, and importing a module does nothing else."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KERNELS = sorted((ROOT / "kernels").rglob("*.py"))
SEARCH = sorted((ROOT / "search").rglob("*.py"))
FORBIDDEN_IN_KERNELS = {"search", "run_search", "optuna", "pandas"}
IMPORT_WATCH = """
import builtins, os, sys, importlib, pkgutil
import torch, triton, optuna, pandas, pyarrow, scipy.stats, typer, rich.progress, pydantic, yaml, filelock
import triton.language, triton.compiler, triton.backends.amd.compiler, triton.runtime.interpreter, numpy.random
touched = []

def audit(event, arguments):
    watched = event in ("os.putenv", "os.unsetenv", "socket.connect", "subprocess.Popen")
    writes = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
    if watched or (writes and "__pycache__" not in str(arguments[0])):
        touched.append((event, str(arguments[0])))

def forbidden(*arguments, **options):
    raise AssertionError("a GPU was asked for while importing")

torch.cuda.is_available = torch.cuda.current_device = torch.cuda.get_device_properties = forbidden
sys.addaudithook(audit)
for name in sys.argv[1:]:
    importlib.import_module(name)
assert not touched, touched
"""


def imported_packages(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    return {name.split(".")[0] for name in names}


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def test_there_are_modules_to_look_at() -> None:
    assert len(KERNELS) > 10
    assert len(SEARCH) > 10


def test_kernels_do_not_know_the_search() -> None:
    assert {module_name(path): bad for path in KERNELS if (bad := imported_packages(path) & FORBIDDEN_IN_KERNELS)} == {}


def test_the_search_does_not_know_the_command_line() -> None:
    assert [module_name(path) for path in SEARCH if "run_search" in imported_packages(path)] == []


def test_importing_touches_no_gpu_and_writes_no_file_or_environment() -> None:
    names = [module_name(path) for path in KERNELS + SEARCH]
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_WATCH, *names, "run_search"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-1500:]


def test_every_package_is_listed_for_installation() -> None:
    packages = {module_name(path.parent / "__init__.py") for path in KERNELS + SEARCH}
    listed = (ROOT / "pyproject.toml").read_text()
    assert [package for package in sorted(packages) if f'"{package}"' not in listed] == []
