"""kernels.rocm.toolchain: in which order programs are found, and which are passed over."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from kernels.rocm import toolchain
from kernels.rocm.toolchain import llvm_tool, llvm_tools, rocm_tools, said, triton_version


@pytest.fixture(autouse=True)
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with one folder on PATH, which is empty."""
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(toolchain, "ROCM_DEFAULT", tmp_path / "usual")
    for variable in toolchain.ROCM_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    return folder


def program(path: Path, prints: str = "") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{prints}'\n")
    path.chmod(0o755)
    return str(path)


def test_a_named_rocm_comes_before_the_path_and_the_usual_folder(
    tmp_path: Path, nothing_installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(rocm_tools("hipcc")) == []
    usual = program(tmp_path / "usual" / "bin" / "hipcc")
    on_path = program(nothing_installed / "hipcc")
    named = program(tmp_path / "other" / "bin" / "hipcc")
    assert list(rocm_tools("hipcc")) == [on_path, usual]
    monkeypatch.setenv("ROCM_PATH", str(tmp_path / "other"))
    assert list(rocm_tools("hipcc")) == [named, on_path, usual]


def test_the_llvm_of_rocm_comes_first_then_the_newest(tmp_path: Path, nothing_installed: Path) -> None:
    plain, old, new = (program(nothing_installed / name) for name in ("clang", "clang-20", "clang-23"))
    of_rocm = program(tmp_path / "usual" / "llvm" / "bin" / "clang")
    program(nothing_installed / "clang-19")
    assert list(llvm_tools("clang")) == [of_rocm, new, old, plain]


def test_an_llvm_that_does_not_know_gfx950_is_passed_over(nothing_installed: Path) -> None:
    program(nothing_installed / "llvm-objdump", "LLVM version 19.1.7")
    assert llvm_tool("llvm-objdump") is None
    found = program(nothing_installed / "llvm-objdump-21", "Debian LLVM version 21.0.0")
    assert llvm_tool("llvm-objdump") == Path(found)


def test_a_file_that_is_no_program_says_nothing(nothing_installed: Path) -> None:
    path = nothing_installed / "clang"
    path.write_text("not a program")
    path.chmod(0o755)
    assert said(str(path), "--version") == ""


@pytest.mark.parametrize(
    "distributions, version",
    [
        ({"triton": "3.9.0"}, "3.9.0"),
        ({"pytorch-triton-rocm": "3.9.0+git1a2b3c4d"}, "3.9.0+git1a2b3c4d"),
        ({"triton": "3.1.0", "triton-rocm": "3.9.0+amd.rocm7.2.0"}, "3.9.0+amd.rocm7.2.0"),
        ({}, "3.9.0"),
    ],
)
def test_two_builds_of_triton_that_call_themselves_the_same_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, distributions: dict[str, str], version: str
) -> None:
    def installed(name: str) -> str:
        if name not in distributions:
            raise metadata.PackageNotFoundError(name)
        return distributions[name]

    monkeypatch.setattr("triton.__version__", "3.9.0")
    monkeypatch.setattr(metadata, "version", installed)
    assert triton_version.__wrapped__() == version
