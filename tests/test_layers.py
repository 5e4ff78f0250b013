"""Dependencies point one way, run_search -> search -> kernels, and importing a module does nothing else."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

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


# A room may import rooms of later lines only; rooms of one line do not know each other.
FLOORS: Mapping[str, tuple[str, ...]] = {
    "kernels": (
        "linear", "dispatch", "runtime", "tables", "families", "launches", "rocm", "mxfp4 triton",
        "config disk yaml_node", "problem device errors wording",
    ),
    "search": (
        "cli", "commands", "evaluators", "device report", "gate space study", "gfx950", "results",
        "workers terminal evaluation formats",
    ),
    "search.gfx950": ("model", "code", "simulator", "machine llvm"),
    "search.gfx950.simulator": (
        "launch", "waves kernel", "program", "instructions checks hazards", "decode", "state",
    ),
}  # fmt: skip


def imported_modules(path: Path, modules: Collection[str]) -> set[str]:
    """Modules of ours that the file imports, anywhere in it."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [
        f"{node.module}.{alias.name}"
        for node in nodes if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    ]  # fmt: skip
    return {found for name in names if (found := next((m for m in _prefixes(name) if m in modules), None))}


def _prefixes(name: str) -> Iterator[str]:
    while name:
        yield name
        name = name.rpartition(".")[0]


@pytest.fixture(scope="module")
def arrows() -> Mapping[str, set[str]]:
    """What each module imports."""
    paths = {module_name(path): path for path in KERNELS + SEARCH}
    return {name: imported_modules(path, paths) - {name} for name, path in paths.items()}


@pytest.mark.parametrize("package", FLOORS)
def test_rooms_import_only_rooms_below_them(package: str, arrows: Mapping[str, set[str]]) -> None:
    floor = {room: number for number, rooms in enumerate(FLOORS[package]) for room in rooms.split()}
    inside = len(package) + 1
    upward = [
        f"{module} -> {other}"
        for module, others in arrows.items() if module.startswith(f"{package}.")
        for other in others if other.startswith(f"{package}.")
        for above, below in [(module[inside:].split(".")[0], other[inside:].split(".")[0])]
        if above != below and floor[above] >= floor[below]
    ]  # fmt: skip
    assert upward == []


def test_no_files_import_each_other_in_a_circle(arrows: Mapping[str, set[str]]) -> None:
    TopologicalSorter(arrows).prepare()  # raises CycleError, which names the circle


def test_every_room_says_what_it_is() -> None:
    rooms = {path.parent for path in KERNELS + SEARCH}
    assert [
        room for room in sorted(rooms) if not ast.get_docstring(ast.parse((room / "__init__.py").read_text()))
    ] == []


def test_no_two_test_files_have_one_name() -> None:
    """They are imported by their names: of two of one name pytest collects neither, if both are asked for."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
