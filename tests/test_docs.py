"""README and docs: every command in them runs, every word that they list exists, every example is the code."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
import types
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from fake_evaluator import FakeEvaluator, judge
from reference import page_of_today
from typer.testing import CliRunner

from kernels.device import GFX950
from kernels.families import FAMILIES
from kernels.families.family import Family
from kernels.families.fused import TileConfig
from kernels.problem import GemmShape
from kernels.tables import sources as table_sources
from kernels.tables.file import write_table
from kernels.tables.rows import Made, TableRow, TunedTable
from search import cli
from search.cli import app
from search.evaluation import Candidate, Evaluation
from search.results.columns import COLUMNS
from search.space.legal_set import legal_set
from search.space.space import load_spaces
from search.study.samplers import SAMPLERS

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    page.name: page.read_text() for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md"))
}
MADE = Made(date(2026, 11, 29), "3.9.0", "2.13.0", "0" * 12, "by hand", "none")
EXAMPLE = "staged_atomic"  # the family that docs/adding-a-family.md adds
SUBCOMMANDS = ("sweep", "export", "inspect", "report", "verify", "explain", "doctor", "calibrate", "shapes from-config")


def commands(page: str) -> list[str]:
    """Lines of the page's shell blocks, without comments and settings of the environment."""
    lines = [
        line for block in re.findall(r"^```sh\n(.*?)^```", PAGES[page], re.M | re.S) for line in block.splitlines()
    ]
    bare = [re.sub(r"^(export )?([A-Z0-9_]+=\S+( |$))+", "", line.partition("#")[0].strip()) for line in lines]
    return [line.removeprefix(".venv/bin/python ") for line in bare if line]


@pytest.mark.parametrize("page", PAGES)
def test_no_line_uses_a_variable_that_only_its_own_command_gets(page: str) -> None:
    """A shell puts ``$NAME`` in before it sets NAME for the command."""
    lines = [
        line for block in re.findall(r"^```\w*\n(.*?)^```", PAGES[page], re.M | re.S) for line in block.splitlines()
    ]
    assert [line for line in lines if re.search(r"^(?:\w+=\S+ )*(\w+)=\S+ .*\$\{?\1\b", line)] == []


def of_ours(page: str) -> list[list[str]]:
    words = [shlex.split(line)[1:] for line in commands(page) if line.startswith("run_search.py ")]
    return [one for one in words if EXAMPLE not in one]


def test_readme_has_at_most_ninety_lines() -> None:
    assert len(PAGES["README.md"].splitlines()) <= 90


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    folder = ROOT if page in ("README.md", "CONTRIBUTING.md") else ROOT / "docs"
    prose = re.sub(r"^```.*?^```", "", PAGES[page], flags=re.M | re.S)
    links = re.findall(r"\]\(([^)#:]+)\)", prose)
    assert [link for link in links if not (folder / link).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_files_that_are_named_exist(page: str) -> None:
    named = re.findall(r"\b(?:benchmarks|configs|kernels|search|tests)/[\w./-]*\w", PAGES[page])
    places = {name.split(":")[0] for name in named if EXAMPLE not in name}
    assert [place for place in sorted(places) if not (ROOT / place).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_make_and_of_benchmarks_exist(page: str) -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.M)
    for line in commands(page):
        if line.startswith("make "):
            assert line.split()[1] in targets
        elif line.startswith("python benchmarks/"):
            text = (ROOT / line.split()[1]).read_text()
            assert [word for word in line.split() if word.startswith("--") and word not in text] == []
        else:
            assert line.startswith(("run_search.py ", "mlp.py", "-m pytest ", "pip "))


@pytest.mark.parametrize("page", [page for page in PAGES if of_ours(page)])
def test_every_command_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the page, in a folder of its own; a formula judges two candidates of a sweep's first shape."""
    monkeypatch.setattr("search.cli._shapes", lambda texts, files, read=cli._shapes: read(texts, files)[:1])
    for makes in ("make_evaluator", "make_cluster"):
        monkeypatch.setattr(f"search.commands.sweep.{makes}", lambda *_, **__: FakeEvaluator(by_formula))
    monkeypatch.setattr(table_sources, "tables_folder", lambda: tmp_path / "tables")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    (tmp_path / "misses.txt").write_text("16x2880x512\n")
    before(tmp_path)
    for words in of_ours(page):
        words = [word.replace("<arch>", "gfx950") for word in words]
        if words[0] == "verify" or (words[0] == "report" and importlib.util.find_spec("plotly") is None):
            assert_understood(words)
            continue
        few = ["--trials", "2", "--families", "fused"] if words[0] == "sweep" else []
        done = CliRunner().invoke(app, [*words, *few])
        assert done.exit_code == 0, (words, done.output, done.exception)


def before(folder: Path) -> None:
    """What a page takes for granted: some results and a table of them."""
    for words in ("sweep 16x2880x512 --trials 2 --families fused", "export --output tuned.yaml"):
        assert CliRunner().invoke(app, words.split(), catch_exceptions=False).exit_code == 0


def by_formula(candidate: Candidate) -> Evaluation:
    return replace(judge(candidate), facts={"model": "formula", "predicted_tie": 9.0})


def assert_understood(words: list[str]) -> None:
    """The options exist."""
    known = options(words[0])
    assert [word for word in words if word.startswith("--") and word not in known] == []


def options(command: str) -> set[str]:
    text = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "200"}).output
    return set(re.findall(r"^\s+(--[a-z][a-z-]*)", text, re.M))


def test_the_reference_has_the_options_of_today() -> None:
    assert page_of_today(PAGES["reference.md"]) == PAGES["reference.md"], "stale: make reference"


@pytest.mark.parametrize("command", SUBCOMMANDS)
def test_the_reference_lists_every_option(command: str) -> None:
    section = re.search(rf"### `{command}`\n(.*?)\n##", PAGES["reference.md"], re.S)
    assert section is not None
    assert set(re.findall(r"^\| `(--[a-z-]+)", section[1], re.M)) == options(command) - {"--help"}


def test_the_reference_lists_every_column_and_sampler() -> None:
    columns = PAGES["reference.md"].partition("## Columns")[2]
    assert [name for name in COLUMNS if f"`{name}`" not in columns] == []
    listed = re.findall(r"^\| `([a-zA-Z_]+)` \| (?:integer|number|text|flag)", columns, re.M)
    assert [name for name in listed if name not in COLUMNS] == []
    assert [name for name in SAMPLERS if name not in PAGES["reference.md"]] == []


def documented_family(monkeypatch: pytest.MonkeyPatch) -> Family:
    source = re.search(r"```python\n(# kernels/families/.*?)```", PAGES["adding-a-family.md"], re.S)
    assert source is not None
    module = types.ModuleType(EXAMPLE)
    monkeypatch.setitem(sys.modules, module.__name__, module)  # where its dataclass looks for types
    exec(compile(source[1], "docs/adding-a-family.md", "exec"), module.__dict__)
    family: Family = module.STAGED_ATOMIC
    return family


def test_the_family_in_the_docs_is_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    family, shape = documented_family(monkeypatch), GemmShape(16, 2112, 7168)
    config = family.config({})
    assert config.check(shape, GFX950) is None
    launched = [call.name for call in family.program(shape, config).calls]
    assert launched == ["quantize_kernel", "zero_kernel", "staged_gemm_kernel", "reduce_kernel"]


def test_the_space_in_the_docs_has_legal_points(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    space = re.search(r"```yaml\n# configs/spaces/.*?\n(.*?)```", PAGES["adding-a-family.md"], re.S)
    assert space is not None
    monkeypatch.setitem(FAMILIES, EXAMPLE, documented_family(monkeypatch))  # type: ignore[arg-type]
    for shared in (ROOT / "configs" / "spaces").iterdir():
        (tmp_path / shared.name).symlink_to(shared)
    (tmp_path / f"{EXAMPLE}.yaml").write_text(space[1])
    loaded = load_spaces(tmp_path, (EXAMPLE,))[EXAMPLE]
    legal = legal_set(loaded, GemmShape(64, 2112, 7168), GFX950)
    assert list(legal.defaults) == list(loaded.defaults) and len(legal) > len(loaded.defaults)


def example() -> tuple[list[str], str]:
    """The commands, and the script that the last of them runs."""
    found = re.search(r"```sh\n([^`]*python mlp\.py\n)```\n\n```python\n(# mlp\.py\n[^`]*)```", PAGES["serving.md"])
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
    lines, script = example()
    assert len(lines) + len(script.splitlines()) <= 30
    (tmp_path / "mlp.py").write_text(script)
    shapes = [GemmShape.parse(word) for word in lines[0].split() if re.fullmatch(r"\d+x\d+x\d+", word)]
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
    lines, script = example()
    (tmp_path / "mlp.py").write_text(script)
    for line in lines[:-1]:
        program, *words = line.partition("#")[0].split()
        assert program == "run_search.py"
        few = ["--trials", "2", "--target", "gfx950", "--families", "fused"] if words[0] == "sweep" else []
        run([sys.executable, str(ROOT / program), *words, *few], tmp_path)
    assert serves_both(tmp_path, "mlp.yaml")
