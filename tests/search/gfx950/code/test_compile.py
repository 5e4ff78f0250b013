"""search.gfx950.code.triton with small kernels: needs Triton, no GPU and no driver."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import triton
import triton.language as tl

from kernels.errors import CompileError
from search.gfx950.code.triton import Specialization, valid_options
from search.workers.compiler_output import diagnostic_line


@triton.jit
def scaled_dot(a_ptr, a_scale_ptr, b_ptr, b_scale_ptr, c_ptr, stride, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    """C [BLOCK, BLOCK] of fp32 = A [BLOCK, BLOCK_K] @ B [BLOCK_K, BLOCK], both MXFP4."""
    rows = tl.arange(0, BLOCK)
    columns = tl.arange(0, BLOCK_K // 2)
    groups = tl.arange(0, BLOCK_K // 32)
    a = tl.load(a_ptr + rows[:, None] * stride + columns[None, :])
    b = tl.load(b_ptr + columns[:, None] + rows[None, :] * stride)
    a_scale = tl.load(a_scale_ptr + rows[:, None] * (BLOCK_K // 32) + groups[None, :])
    b_scale = tl.load(b_scale_ptr + rows[:, None] * (BLOCK_K // 32) + groups[None, :])
    c = tl.dot_scaled(a, a_scale, "e2m1", b, b_scale, "e2m1")
    tl.store(c_ptr + rows[:, None] * BLOCK + rows[None, :], c)


@triton.jit
def copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """y = x for n values."""
    offsets = tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


TYPES = {
    "a_ptr": "*u8",
    "a_scale_ptr": "*u8",
    "b_ptr": "*u8",
    "b_scale_ptr": "*u8",
    "c_ptr": "*fp32",
    "stride": "i32",
}
COPY_TYPES = {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32"}
COPY = Specialization(copy, COPY_TYPES, {"BLOCK": 64})
SCALED_DOT = Specialization(
    scaled_dot, TYPES, {"BLOCK": 32, "BLOCK_K": 256}, {"num_warps": 2, "num_stages": 1}, divisible_by_16=("stride",)
)


class NoDriver:
    """A driver that no compilation may touch."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"the active driver was asked for {name}")


def test_a_scaled_dot_becomes_scaled_mfma_with_buffer_loads() -> None:
    built = SCALED_DOT.compile()
    assert "v_mfma_scale_f32_" in built.assembly
    assert "buffer_load_dwordx4" in built.assembly  # only with both tt.pointer_range and tt.divisibility
    assert (built.name, built.arch, built.num_warps) == ("scaled_dot", "gfx950", 2)
    assert built.triton_version == triton.__version__
    assert built.lds_bytes > 0
    assert built.compile_s > 0
    assert ".loc" not in built.assembly


def test_a_large_tensor_is_not_addressed_through_a_buffer_resource() -> None:
    built = replace(SCALED_DOT, large_pointers=("a_ptr", "b_ptr")).compile()
    assert "global_load_dwordx4" in built.assembly
    assert "buffer_load_dwordx4" not in built.assembly


def test_compiles_without_the_active_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton.runtime.driver, "_active", NoDriver())
    assert COPY.compile().name == "copy"


def test_leaves_no_trace_in_tritons_own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    replace(COPY, constexprs={"BLOCK": 128}).compile()
    assert list(tmp_path.iterdir()) == []
    assert os.environ["TRITON_CACHE_DIR"] == str(tmp_path)


def test_a_rejected_kernel_gives_one_line_and_a_quiet_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CompileError, match="power of 2") as raised:
        replace(COPY, constexprs={"BLOCK": 100}).compile()
    assert "\n" not in str(raised.value)
    assert capfd.readouterr() == ("", "")


def test_the_log_keeps_what_the_compiler_wrote_when_the_process_dies(tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = (
        "import os, pathlib\n"
        "from search.gfx950.code import triton as module\n"
        "def die(*args, **kwargs):\n"
        "    os.write(2, b'LLVM ERROR: out of patience\\n'); os.abort()\n"
        "module.make_backend = die\n"
        "from test_compile import COPY\n"
        f"log = pathlib.Path({str(log)!r})\n"
        "COPY.compile(log)\n"
    )
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    run = subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": path}, capture_output=True)
    assert run.returncode < 0
    assert run.stderr == b""
    assert diagnostic_line(log.read_text()) == "LLVM ERROR: out of patience"


@pytest.mark.parametrize(
    "text, line",
    [
        (
            "warning: slow\n<unknown>:0: error: 'x.y' op wants 8 values\n#blocked = 1\n",
            "'x.y' op wants 8 values",
        ),
        ("LLVM ERROR: cannot select: t1\nstack\n", "LLVM ERROR: cannot select: t1"),
        ("python: a.cpp:3: f(): Assertion `n > 0' failed.\n", "Assertion `n > 0' failed."),
        ("remark: unrolled\n", ""),
    ],
)
def test_finds_the_line_that_says_what_went_wrong(text: str, line: str) -> None:
    assert diagnostic_line(text) == line


def test_names_unknown_options() -> None:
    assert {"num_warps", "num_stages", "waves_per_eu", "matrix_instr_nonkdim"} <= valid_options()
    with pytest.raises(ValueError, match="no AMD option maxnreg"):
        replace(COPY, options={"maxnreg": 64}).compile()
    with pytest.raises(ValueError, match="num_warps=3"):
        replace(COPY, options={"num_warps": 3}).compile()


def test_names_arguments_without_a_type_and_types_without_an_argument() -> None:
    with pytest.raises(ValueError, match=r"no type or value for \['n'\]"):
        replace(COPY, signature={"x_ptr": "*fp32", "y_ptr": "*fp32"}).compile()
    with pytest.raises(ValueError, match=r"no argument \['z_ptr'\]"):
        replace(COPY, signature={**COPY_TYPES, "z_ptr": "*fp32"}).compile()


def test_refuses_what_triton_cannot_compile() -> None:
    with pytest.raises(TypeError, match=r"not a compilable triton\.jit function"):
        Specialization(print, {}, {}).compile()
    with pytest.raises(TypeError, match=r"not a compilable triton\.jit function"):
        Specialization(print, {}, {}).key()


def test_the_key_covers_everything_that_decides_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def key(**changes: Any) -> str:
        return replace(COPY, **changes).key()

    keys = [
        key(),
        key(fn=scaled_dot),
        key(signature={**COPY_TYPES, "n": "i64"}),
        key(constexprs={"BLOCK": 128}),
        key(options={"num_warps": 8}),
        key(divisible_by_16=("n",)),
        key(large_pointers=("x_ptr",)),
        key(arch="gfx942"),
    ]
    monkeypatch.setattr("search.gfx950.code.triton.triton_version", lambda: "9.9.9")
    keys.append(key())
    monkeypatch.setenv("AMDGCN_USE_BUFFER_OPS", "0")
    keys.append(key())
    assert len(set(keys)) == len(keys)
    assert key() == key()


def test_the_key_ignores_the_order_of_names() -> None:
    assert replace(COPY, signature=dict(reversed(COPY_TYPES.items()))).key() == COPY.key()
