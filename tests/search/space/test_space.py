"""search.space.space: what a space file may say, and one line for each mistake in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernels.device import GFX950
from kernels.errors import InputError
from kernels.families import FAMILIES
from kernels.families.aiter import AiterConfig
from kernels.families.fused import SplitKAtomicConfig, TileConfig
from kernels.problem import GemmShape
from search.space.legal_set import legal_set
from search.space.space import SearchSpace, load_space, load_spaces

GOOD = """\
family: fused_splitk_atomic
parameters:
  BLOCK_M: [16, 32]
  split_k: [1, 4]
  cache_modifier: ["", .cg]
constraints:
  - "split_k * BLOCK_K <= K" # a comment
defaults:
  - {BLOCK_M: 32, split_k: 4}
  - {split_k: 1}
"""
SHIPPED = Path(__file__).resolve().parents[3] / "configs" / "spaces"


def load(tmp_path: Path, text: str) -> SearchSpace:
    path = tmp_path / "space.yaml"
    path.write_text(text)
    return load_space(path)


def test_a_space_holds_choices_constraints_and_complete_defaults(tmp_path: Path) -> None:
    space = load(tmp_path, GOOD)
    assert space.family == "fused_splitk_atomic"
    assert space.parameters == {"BLOCK_M": (16, 32), "split_k": (1, 4), "cache_modifier": ("", ".cg")}
    assert [constraint.text for constraint in space.constraints] == ["split_k * BLOCK_K <= K"]
    assert space.defaults == (SplitKAtomicConfig(BLOCK_M=32, split_k=4), SplitKAtomicConfig(split_k=1))


def test_knobs_that_are_not_listed_keep_the_family_default(tmp_path: Path) -> None:
    fixed = load(tmp_path, GOOD).fixed
    assert fixed["BLOCK_N"] == TileConfig().BLOCK_N
    assert not fixed.keys() & {"BLOCK_M", "split_k", "cache_modifier"}


def test_constraints_and_defaults_may_be_absent(tmp_path: Path) -> None:
    space = load(tmp_path, "family: fused\nparameters: {num_warps: [4]}\n")
    assert (space.constraints, space.defaults) == ((), ())


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        (" # a comment", "", True),
        ("split_k * BLOCK_K <= K", "(split_k*BLOCK_K) <= K", True),
        ("BLOCK_M: [16, 32]", "BLOCK_M:\n  - 16\n  - 32", True),
        ("[16, 32]", "[16, 32, 64]", False),
        ("[16, 32]", "[32, 16]", False),  # the order numbers the points
        ("<= K", "< K", False),
        ("{split_k: 1}", "{BLOCK_M: 32, split_k: 1}", False),
    ],
)
def test_the_digest_is_of_the_content(tmp_path: Path, old: str, new: str, same: bool) -> None:
    assert old in GOOD
    first, second = load(tmp_path, GOOD).digest, load(tmp_path, GOOD.replace(old, new)).digest
    assert (first == second) is same


@pytest.mark.parametrize(
    ("old", "new", "line", "problem"),
    [
        ("[16, 32]", "[16, 32", 4, "not YAML"),
        ("defaults:", "default:", 9, "default: unknown key; did you mean 'defaults'? use one of family, parameters"),
        ("family: fused_splitk_atomic", "family: fusd", 1, "'fusd' is unknown; did you mean 'fused'? use"),
        ("family: fused_splitk_atomic", "title: x", 1, "title: unknown key; use one of family"),
        ("split_k: [1, 4]", "splitk: [1, 4]", 4, "parameters splitk: unknown key; did you mean 'split_k'? use"),
        ("split_k: [1, 4]", "BLOCK_M: [1, 4]", 4, "parameters BLOCK_M: is given twice; keep one"),
        ("split_k: [1, 4]", "split_k: []", 4, "parameters split_k: is an empty list; give a value"),
        ("split_k: [1, 4]", "split_k: 4", 4, "parameters split_k: must be a list; write [value, ...]"),
        ("split_k: [1, 4]", "split_k: [1, 4, 1]", 4, "1 is given twice; keep one"),
        ("split_k: [1, 4]", "split_k: [1, 4.0]", 4, "'4.0' is not a whole number"),
        ("split_k: [1, 4]", "split_k: [1, true]", 4, "'true' is not a whole number"),
        ("split_k: [1, 4]", "split_k: [1, '4']", 4, "'4' is not a whole number"),
        ("split_k: [1, 4]", "split_k: [1, [4]]", 4, "must be a whole number"),
        ("split_k: [1, 4]", "split_k: [1, 4294967296]", 4, "split_k 2: 4294967296 is not within 1..65535; correct it"),
        ("split_k: [1, 4]", "split_k: [1, 0]", 4, "split_k 2: 0 is not within 1..65535; correct it"),
        ("BLOCK_M: [16, 32]", "waves_per_eu: [-1]", 3, "parameters waves_per_eu 1: -1 is not within 0..20; correct it"),
        ("{split_k: 1}", "{num_stages: -2}", 10, "defaults 2 num_stages: -2 is not within 1..32; correct it"),
        ("split_k: [1, 4]", f"split_k: {list(range(1, 129))}", 4, "has 128 values; give at most 127"),
        (".cg]", ".ca]", 5, "'.ca' is unknown; did you mean '.cg'? use one of '', .cg"),
        (".cg]", "null]", 5, "'null' is not one of '', '.cg'"),
        ("split_k * BLOCK_K <= K", "split_k * BLOCK <= K", 7, "names 'BLOCK', which is unknown; did you mean 'BLOCK_"),
        ("split_k * BLOCK_K <= K", "len(K) == 3", 7, "calls `len`, which is not allowed; use only"),
        ('\n  - "split_k', ' "split_k', 6, "constraints: must be a list; write - before each member"),
        ('- "split_k * BLOCK_K <= K"', "- [K]", 7, "must be a text"),
        ("{split_k: 1}", "{split_k: 2}", 10, "split_k = 2 is not among [1, 4]; use one of them, or add it there"),
        ("{split_k: 1}", "{BLOCK_N: 32}", 10, "BLOCK_N = 32 is not among [64]"),
        ("{split_k: 1}", "{BLOCK: 32}", 10, "BLOCK: unknown key; did you mean 'BLOCK_"),
        ("{split_k: 1}", "{split_k: x}", 10, "'x' is not a whole number"),
        ("{split_k: 1}", "7", 10, "must be a mapping"),
    ],
)
def test_each_mistake_is_one_line_with_file_line_and_cure(
    tmp_path: Path, old: str, new: str, line: int, problem: str
) -> None:
    assert old in GOOD
    with pytest.raises(InputError) as caught:
        load(tmp_path, GOOD.replace(old, new))
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'space.yaml'}:{line}: ")
    assert problem in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "space.yaml: holds nothing"),
        ("- family\n", "space.yaml:1: must be a mapping"),
        ("family: fused\n", "space.yaml:1: lacks parameters; add it"),
        ("family: fused\nparameters: {}\n", "space.yaml:2: parameters: is empty; list values"),
        (
            "family: fused\nparameters:\n  BLOCK_M: &a [*a]\n",
            "space.yaml:3: parameters BLOCK_M 1: must be a whole number",
        ),
    ],
)
def test_files_without_the_main_things_are_named(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        load(tmp_path, text)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named_with_the_cure(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.yaml: no such file; name a file of configs/spaces"):
        load_space(tmp_path / "none.yaml")


def test_a_folder_gives_the_asked_families_in_the_asked_order() -> None:
    assert list(load_spaces(SHIPPED, ["staged_triton", "fused"])) == ["staged_triton", "fused"]


def test_a_folder_gives_every_family_that_has_a_file(tmp_path: Path) -> None:
    (tmp_path / "fused.yaml").write_text("family: fused\nparameters: {num_warps: [4]}\n")
    assert list(load_spaces(tmp_path)) == ["fused"]


@pytest.mark.parametrize(
    ("families", "problem"),
    [
        (["fusd"], "unknown family 'fusd'; did you mean 'fused'? use one of fused, "),
        (None, "holds no space; add fused.yaml or name another folder"),
        (["fused"], "fused.yaml: no such file"),
    ],
)
def test_a_folder_without_the_space_is_one_line(tmp_path: Path, families: list[str] | None, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        load_spaces(tmp_path, families)
    assert problem in str(caught.value)


def test_a_file_named_after_another_family_is_refused(tmp_path: Path) -> None:
    (tmp_path / "fused.yaml").write_text(GOOD)
    with pytest.raises(InputError, match=r"fused\.yaml: family: is 'fused_splitk_atomic'; write 'fused', or rename"):
        load_spaces(tmp_path)


def test_every_family_has_a_shipped_space() -> None:
    assert load_spaces(SHIPPED).keys() == FAMILIES.keys()


def test_a_search_splits_the_k_of_code_objects_only_where_it_is_asked_to() -> None:
    assert load_space(SHIPPED / "staged_ck.yaml").parameters["log2_k_split"] == (0,)


def test_a_family_without_knobs_has_an_empty_space(tmp_path: Path) -> None:
    space = load(tmp_path, "family: aiter\nparameters: {}\ndefaults: [{}]\n")
    assert (space.parameters, space.defaults) == ({}, (AiterConfig(),))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        # What tuned tables published for gfx950 use.
        ("BLOCK_M", {4, 8, 16, 32, 64, 128, 256}),
        ("BLOCK_N", {16, 32, 64, 128, 256}),
        ("BLOCK_K", {128, 256, 512, 1024}),
        ("split_k", {1, 2, 3, 4, 7, 8, 14, 16}),
        ("num_warps", {2, 4, 8}),
        ("num_stages", {1, 2, 3, 4}),
        ("waves_per_eu", {0, 1, 2, 4, 6, 8}),
        ("GROUP_M", {1, 2, 4, 8, 16, 32}),
        ("matrix_instr_nonkdim", {16, 32}),
        ("cache_modifier", {"", ".cg"}),
        ("num_xcds", {1, 8}),
        ("quantizer", {"hardware", "software"}),
    ],
)
def test_shipped_spaces_reach_the_values_of_public_winners(name: str, values: set[int | str]) -> None:
    triton = [name for name, family in FAMILIES.items() if family.is_triton]
    for space in load_spaces(SHIPPED, triton).values():
        if name in space.config_type().to_dict():
            assert values <= set(space.parameters[name])


BASE = """\
absent: {split_k: 1}
parameters:
  BLOCK_M: [16, 64]
  BLOCK_N: [64]
  split_k: [1, 2]
constraints:
  - "split_k * BLOCK_K <= K"
"""
HEIR = "family: fused\nextends: base.yaml\nparameters: {BLOCK_M: [32]}\ndefaults:\n  - {BLOCK_M: 32}\n"


def inherited(tmp_path: Path, heir: str, base: str = BASE) -> SearchSpace:
    (tmp_path / "base.yaml").write_text(base)
    return load(tmp_path, heir)


def test_a_space_takes_over_what_it_does_not_say_itself_and_its_family_has(tmp_path: Path) -> None:
    space = inherited(tmp_path, HEIR)
    assert space.parameters == {"BLOCK_M": (32,), "BLOCK_N": (64,)}
    assert [constraint.where for constraint in space.constraints] == [f"{tmp_path / 'base.yaml'}:7"]
    assert space.absent == {"split_k": 1}


def test_an_absent_knob_is_read_only_where_the_family_lacks_it(tmp_path: Path) -> None:
    space = inherited(tmp_path, "family: fused_splitk_atomic\nextends: base.yaml\n")
    assert (space.parameters["split_k"], space.absent) == ((1, 2), {})
    # One slice of BLOCK_K = 256, the default, does not fit K = 128.
    with pytest.raises(InputError, match="constraint 'split_k \\* BLOCK_K <= K'"):
        legal_set(inherited(tmp_path, HEIR), GemmShape(64, 64, 128), GFX950)


def test_a_file_that_two_files_extend_counts_once(tmp_path: Path) -> None:
    (tmp_path / "middle.yaml").write_text("extends: base.yaml\n")
    space = inherited(tmp_path, HEIR.replace("base.yaml", "[middle.yaml, base.yaml]"))
    assert len(space.constraints) == 1


@pytest.mark.parametrize(
    ("heir", "base", "problem"),
    [
        (HEIR, BASE.replace("BLOCK_N", "BLOCK"), "base.yaml:4: parameters BLOCK: unknown key; did you mean"),
        (HEIR, BASE.replace("{split_k: 1}", "{splitk: 1}"), "base.yaml:1: absent splitk: unknown key"),
        (HEIR, BASE.replace("absent: {split_k: 1}", "absent: {}"), "base.yaml:7: constraint"),
        (HEIR, f"extends: space.yaml\n{BASE}", "base.yaml:1: extends: space.yaml extends itself"),
        (HEIR.replace("base.yaml", "gone.yaml"), BASE, "gone.yaml: no such file"),
        ("family: fused\nextends: base.yaml\n", "constraints: []\n", "is empty; list values for one of BLOCK_M"),
    ],
)
def test_a_mistake_in_an_extended_file_is_located_there(tmp_path: Path, heir: str, base: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        inherited(tmp_path, heir, base)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_file_of_a_family_is_thirty_lines_at_most(name: str) -> None:
    assert len((SHIPPED / f"{name}.yaml").read_text().splitlines()) <= 30
