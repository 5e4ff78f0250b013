"""kernels.rocm.cache: each build is made once, whoever asks, and a failed one is remembered until something changes."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

from kernels.errors import InputError, KernelError, TimedOutError
from kernels.launches.native import HipKernel
from kernels.rocm.cache import HipCache
from kernels.rocm.compiler import HipCompileError, HipCompiler, build_key, find_compiler

KERNEL = HipKernel("k", ("x_ptr",), 64, "k.hip", {"FACTOR": 3}, ("ptr",))


class Bench:
    """A compiler of a few lines of shell, its sources, and a count of how often it ran."""

    def __init__(self, folder: Path) -> None:
        self.runs = folder / "runs"
        self.cache = HipCache(folder / "cache", folder / "sources")
        self.cache.sources.mkdir()
        (self.cache.sources / "k.hip").write_text("k: source\n")
        self.program = folder / "clang"
        self.compiler = HipCompiler(self.program, self.program, "clang version 20.0.0")
        self.does("sleep 0.2; [ -f k.hip ] && cp k.hip kernel.s || echo object of $(cat kernel.s) >kernel.co")

    def does(self, body: str) -> None:
        self.program.write_text(f"#!/bin/sh\necho run >>{self.runs}\n{body}\n")
        self.program.chmod(0o755)

    @property
    def count(self) -> int:
        return len(self.runs.read_text().splitlines()) if self.runs.exists() else 0

    @property
    def record(self) -> Path:
        [path] = self.cache.folder.rglob("*.json.gz")
        return path


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def assembly(cache: HipCache, compiler: HipCompiler) -> str:
    return cache.build(KERNEL, compiler=compiler).assembly


def test_a_build_is_made_once_and_read_by_the_next_process(bench: Bench) -> None:
    first = bench.cache.build(KERNEL, compiler=bench.compiler)
    assert first.assembly == "k: source\n"
    assert HipCache(bench.cache.folder, bench.cache.sources).build(KERNEL, compiler=bench.compiler) == first
    assert bench.cache.load(build_key(KERNEL, "gfx950", bench.compiler, bench.cache.sources)) == first
    assert bench.count == 1


def test_a_code_object_is_assembled_once_from_the_assembly(bench: Bench) -> None:
    for _ in range(2):
        assert bench.cache.code_object(KERNEL, compiler=bench.compiler) == b"object of k: source\n"
    assert bench.count == 2  # one compiles, one assembles


def test_processes_and_threads_that_want_the_same_build_make_it_once(bench: Bench) -> None:
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, spawn) as processes, ThreadPoolExecutor(4) as threads:
        pools = (processes, processes, threads, threads, threads, threads)
        asked = [pool.submit(assembly, bench.cache, bench.compiler) for pool in pools]
        assert {one.result(timeout=60) for one in asked} == {"k: source\n"}
    assert bench.count == 1


def test_a_failed_build_is_remembered_with_all_that_the_compiler_said(bench: Bench) -> None:
    bench.does("echo note; echo 'k.hip:3:1: error: bad thing'; exit 1")
    for _ in range(3):
        with pytest.raises(HipCompileError) as caught:
            bench.cache.build(KERNEL, compiler=bench.compiler)
        assert str(caught.value) == "k.hip:3: bad thing"
        assert caught.value.output == "note\nk.hip:3:1: error: bad thing\n"
    assert bench.count == 1


def test_a_failed_build_is_tried_again_when_source_macro_or_compiler_changes(bench: Bench) -> None:
    bench.does("exit 1")

    def fails(kernel: HipKernel, version: str) -> None:
        with pytest.raises(HipCompileError):
            bench.cache.build(kernel, compiler=HipCompiler(bench.program, bench.program, version))

    fails(KERNEL, "clang version 20.0.0")
    fails(KERNEL, "clang version 20.0.1")
    fails(HipKernel("k", ("x_ptr",), 64, "k.hip", {"FACTOR": 4}, ("ptr",)), "clang version 20.0.0")
    (bench.cache.sources / "k.hip").write_text("k: other\n")
    fails(KERNEL, "clang version 20.0.0")
    assert bench.count == 4


def test_a_build_that_did_not_end_is_remembered(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.does("exec sleep 30")
    monkeypatch.setattr("kernels.rocm.compiler.TIMEOUT_S", 0.3)
    for _ in range(2):
        with pytest.raises(TimedOutError):
            bench.cache.build(KERNEL, compiler=bench.compiler)
    assert bench.count == 1


@pytest.mark.parametrize("accident", ["kill -9 $$", "echo No space left on device; exit 1", ": >kernel.s"])
def test_a_compiler_that_met_an_accident_is_asked_again(bench: Bench, accident: str) -> None:
    bench.does(accident)
    with pytest.raises(KernelError, match=r"k\.hip: the compiler "):
        bench.cache.build(KERNEL, compiler=bench.compiler)
    bench.does("cat k.hip >kernel.s")
    assert assembly(bench.cache, bench.compiler) == "k: source\n"


@pytest.mark.parametrize("content", [b"", b"\x1f\x8b", None])
def test_a_torn_or_altered_record_is_written_again(bench: Bench, content: bytes | None) -> None:
    assembly(bench.cache, bench.compiler)
    whole = bench.record.read_bytes()
    bench.record.write_bytes(whole[:-20] if content is None else content)
    assert assembly(bench.cache, bench.compiler) == "k: source\n"
    assert bench.count == 2
    assert HipCache(bench.cache.folder, bench.cache.sources).build(KERNEL, compiler=bench.compiler)
    assert bench.count == 2


def test_an_altered_code_object_is_assembled_again(bench: Bench) -> None:
    bench.cache.code_object(KERNEL, compiler=bench.compiler)
    [path] = bench.cache.folder.rglob("*.co")
    path.write_bytes(path.read_bytes().replace(b"object", b"reject"))
    assert bench.cache.code_object(KERNEL, compiler=bench.compiler) == b"object of k: source\n"


def test_nothing_but_records_and_locks_is_left(bench: Bench) -> None:
    bench.cache.code_object(KERNEL, compiler=bench.compiler)
    assert {path.suffix for path in bench.cache.folder.rglob("*") if path.is_file()} <= {".gz", ".co", ".lock"}


def test_a_folder_that_cannot_be_written_has_a_stand_in_that_keeps_builds(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    bench.cache.folder.write_text("a file")
    for _ in range(3):
        assert bench.cache.code_object(KERNEL, compiler=bench.compiler) == b"object of k: source\n"
    assert bench.count == 2  # one compiles, one assembles
    assert [str(bench.cache.folder) in record.getMessage() for record in caplog.records] == [True]


def test_what_a_folder_has_that_cannot_be_written_any_more_is_used(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = bench.cache.code_object(KERNEL, compiler=bench.compiler)

    def refuse(folder: Path) -> Path:
        raise AssertionError(f"{folder} was to be written")

    monkeypatch.setattr("kernels.rocm.cache.writable_cache", refuse)
    assert bench.cache.code_object(KERNEL, compiler=bench.compiler) == made


def test_without_any_folder_the_first_is_named_with_the_cure(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    bench.cache.folder.write_text("a file")
    with pytest.raises(InputError, match=f"{bench.cache.folder}.*set XDG_CACHE_HOME"):
        bench.cache.build(KERNEL, compiler=bench.compiler)


def test_a_full_disk_is_named_with_the_cure_and_leaves_nothing_half_written(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=f"{bench.cache.folder}: No space left on device; set XDG_CACHE_HOME"):
        bench.cache.build(KERNEL, compiler=bench.compiler)
    assert {path.suffix for path in bench.cache.folder.rglob("*") if path.is_file()} <= {".lock"}


def test_the_default_folder_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert HipCache().folder == tmp_path / "mxfp4-tune" / "hip"


def test_a_kernel_of_the_package_becomes_a_code_object(tmp_path: Path) -> None:
    try:
        linker = find_compiler().linker()
    except InputError as error:
        pytest.skip(str(error))
    if linker is None:
        pytest.skip("no ld.lld")
    defines = {"QUANT_THREADS": 256, "QUANT_GROUPS": 1, "QUANT_VECTOR": 8}
    kernel = HipKernel("mxfp4_quantize", (), 256, "quantize.hip", defines)
    code_object = HipCache(tmp_path).code_object(kernel)
    assert code_object[:4] == b"\x7fELF"
    assert b"mxfp4_quantize.kd" in code_object
