"""search.space.available: what is left out of a sweep where a compiler, code objects or a library are absent."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from kernels.device import GFX950, DeviceKey
from kernels.errors import InputError
from kernels.families import FAMILIES
from kernels.families.aiter import installed
from kernels.families.staged_ck import StagedCkConfig
from kernels.rocm import code_objects as code_objects_module
from kernels.rocm.code_objects import PATH_VARIABLE
from kernels.rocm.compiler import COMPILER_VARIABLE
from search.space.available import absence, available_spaces, config_absence
from search.space.space import load_spaces

SHIPPED = Path(__file__).resolve().parents[3] / "configs" / "spaces"
NATIVE = ("staged_hip", "staged_ck", "aiter_triton_a4w4", "aiter_triton_a16w4", "aiter")


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No HIP compiler, no AITER."""
    monkeypatch.setenv(COMPILER_VARIABLE, str(tmp_path / "nothing"))
    monkeypatch.setenv(PATH_VARIABLE, str(tmp_path))


@pytest.fixture
def complete(code_objects: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A HIP compiler and a disassembler by name only, and AITER's index."""
    program = tmp_path / "clang"
    program.write_text("#!/bin/sh\ncase $1 in --version) echo clang version 22.1.0;; *) echo amdgcn;; esac\n")
    program.chmod(0o755)
    monkeypatch.setenv(COMPILER_VARIABLE, str(program))
    monkeypatch.setattr(code_objects_module, "find_tool", lambda name: Path(name))


@pytest.mark.usefixtures("bare")
def test_each_missing_thing_is_named_with_its_cure() -> None:
    reasons = {family: absence(family, GFX950, offline=True) for family in FAMILIES}
    assert {family for family, reason in reasons.items() if reason is not None} == set(NATIVE)
    assert "name a hipcc, or a clang" in (reasons["staged_hip"] or "")
    assert "set MXFP4_AITER to an AITER install" in (reasons["staged_ck"] or "")
    assert "measured on a GPU only" in (reasons["aiter"] or "")
    assert "pip install amd-aiter" in (absence("aiter", GFX950, offline=False) or "")


@pytest.mark.parametrize("is_package", [True, False])
def test_a_folder_named_aiter_without_code_is_no_installed_aiter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_package: bool
) -> None:
    (tmp_path / "aiter" / "aiter_meta").mkdir(parents=True)
    if is_package:
        (tmp_path / "aiter" / "__init__.py").touch()
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    importlib.invalidate_caches()
    assert installed() is is_package


@pytest.mark.usefixtures("complete")
def test_nothing_is_missing_offline_but_what_a_library_chooses() -> None:
    assert [family for family in FAMILIES if absence(family, GFX950, offline=True)] == ["aiter"]


@pytest.mark.usefixtures("complete")
def test_a_hip_quantise_kernel_needs_a_compiler_and_a_triton_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_triton, by_hip = StagedCkConfig(), StagedCkConfig(quantize_kernel="hip")
    assert config_absence("staged_ck", by_hip, GFX950, offline=True) is None
    monkeypatch.setenv(COMPILER_VARIABLE, str(tmp_path / "nothing"))
    assert config_absence("staged_ck", by_triton, GFX950, offline=True) is None
    assert "name a hipcc" in (config_absence("staged_ck", by_hip, GFX950, offline=True) or "")
    monkeypatch.setenv(PATH_VARIABLE, str(tmp_path))
    assert "set MXFP4_AITER" in (config_absence("staged_ck", by_hip, GFX950, offline=True) or "")


@pytest.mark.usefixtures("complete")
def test_another_device_has_the_triton_families_only() -> None:
    for family in FAMILIES:
        reason = absence(family, DeviceKey("sm_90", 132), offline=False)
        assert reason == ("its kernels are for gfx950, not for sm_90" if family in NATIVE else None)


@pytest.mark.usefixtures("bare")
def test_families_that_lack_something_are_left_out_with_a_line_each() -> None:
    spaces, lines = available_spaces(load_spaces(SHIPPED), None, GFX950, offline=True)
    assert spaces.keys() == FAMILIES.keys() - set(NATIVE)
    assert [line.partition(" is left out: ")[0] for line in lines] == list(NATIVE)


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("family", NATIVE)
def test_a_family_that_was_asked_for_and_lacks_something_is_an_error(family: str) -> None:
    with pytest.raises(InputError, match=rf"^--families {family}: "):
        available_spaces(load_spaces(SHIPPED, ["fused", family]), ["fused", family], GFX950, offline=True)


def test_without_a_hip_compiler_code_objects_are_fed_by_triton(
    complete: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, lines = available_spaces(load_spaces(SHIPPED, ["staged_ck"]), ["staged_ck"], GFX950, offline=True)
    assert both["staged_ck"].parameters["quantize_kernel"] == ("triton", "hip")
    assert lines == []
    monkeypatch.setenv(COMPILER_VARIABLE, str(tmp_path / "nothing"))
    fewer, lines = available_spaces(load_spaces(SHIPPED, ["staged_ck"]), ["staged_ck"], GFX950, offline=True)
    assert fewer["staged_ck"].parameters["quantize_kernel"] == ("triton",)
    assert fewer["staged_ck"].defaults
    assert "hip" not in {config.to_dict()["quantize_kernel"] for config in fewer["staged_ck"].defaults}
    assert len(lines) == 1 and lines[0].startswith("staged_ck with quantize_kernel=hip is left out: ")
