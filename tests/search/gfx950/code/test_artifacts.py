"""search.gfx950.code.artifacts: what the folder answers, and what it does with damaged files."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
import triton
import triton.language as tl

from kernels.errors import CompileError
from search.gfx950.code.artifacts import ArtifactCache
from search.gfx950.code.triton import CompiledKernel, Specialization

KEY = "ab" * 32
KERNEL = CompiledKernel("k", "gfx950", "3.9.0", 4, 1280, 0.5, "k:\n\ts_endpgm\n; Grüße\n")


@triton.jit
def fill(x_ptr, BLOCK: tl.constexpr):
    """x = 0 for BLOCK values."""
    tl.store(x_ptr + tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.float32))


def compile_fill(cache: ArtifactCache, block: int) -> CompiledKernel:
    return cache.compile(Specialization(fill, {"x_ptr": "*fp32"}, {"BLOCK": block}, {"num_warps": 1}))


def no_compiler(*args: object, **kwargs: object) -> CompiledKernel:
    raise AssertionError("compiled again")


def test_gives_back_what_was_stored(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path / "not" / "there")
    assert cache.load(KEY) is None
    cache.store(KEY, KERNEL)
    assert cache.load(KEY) == KERNEL
    assert [path.name for path in (tmp_path / "not" / "there").rglob("*.*")] == [f"{KEY}.json.gz"]


def test_keeps_compile_errors(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    cache.store(KEY, CompileError("op wants 8 values"))
    found = cache.load(KEY)
    assert isinstance(found, CompileError)
    assert str(found) == "op wants 8 values"


def test_a_torn_corrupt_or_foreign_file_counts_as_absent_and_is_rewritten(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    cache.store(KEY, KERNEL)
    whole = cache.path(KEY).read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0x10
    for damaged in (b"", whole[:-1], whole[: len(whole) // 2], bytes(flipped), b"not gzip", whole[:12]):
        cache.path(KEY).write_bytes(damaged)
        assert cache.load(KEY) is None
    cache.store(KEY, KERNEL)
    assert cache.load(KEY) == KERNEL


def test_a_readable_record_that_was_altered_counts_as_absent(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    cache.store("ab" * 32, KERNEL)
    path = cache.path("ab" * 32)
    record = json.loads(gzip.decompress(path.read_bytes()))
    record["result"][1]["num_warps"] = "x"
    path.write_bytes(gzip.compress(json.dumps(record).encode()))
    assert cache.load("ab" * 32) is None


def test_a_file_under_the_wrong_key_counts_as_absent(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    cache.store(KEY, KERNEL)
    other = "ac" * 32
    cache.path(other).parent.mkdir()
    cache.path(KEY).rename(cache.path(other))
    assert cache.load(other) is None


def test_a_failed_write_leaves_the_old_file_and_no_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = ArtifactCache(tmp_path)
    cache.store(KEY, KERNEL)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        cache.store(KEY, CompileError("other"))
    assert cache.load(KEY) == KERNEL
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [cache.path(KEY)]


def test_compiles_each_kernel_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = ArtifactCache(tmp_path)
    first = compile_fill(cache, 64)
    with pytest.raises(CompileError, match="power of 2"):
        compile_fill(cache, 48)
    monkeypatch.setattr(Specialization, "compile", no_compiler)
    assert compile_fill(cache, 64) == first
    with pytest.raises(CompileError, match="power of 2"):
        compile_fill(cache, 48)
    with pytest.raises(AssertionError, match="compiled again"):
        compile_fill(cache, 128)
