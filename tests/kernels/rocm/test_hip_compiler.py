"""kernels.rocm.compiler: which compiler is taken, what decides a build, and what an error says."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from installed_hip import needs_compiler

from kernels.errors import InputError, KernelError, TimedOutError
from kernels.launches.native import HipKernel
from kernels.rocm import compiler as hip_compiler
from kernels.rocm import toolchain
from kernels.rocm.compiler import (
    HipCompileError,
    HipCompiler,
    assemble,
    build_key,
    compile_hip,
    diagnostic,
    find_compiler,
    probe_compiler,
    read_sources,
)

SOURCE = """#include "factor.h"
extern "C" __attribute__((global)) void scale(float* out_ptr, int n) {
    int i = __builtin_amdgcn_workitem_id_x();
    if (i < n) out_ptr[i] *= FACTOR;
}
"""


def kernel(**defines: int) -> HipKernel:
    return HipKernel("scale", ("out_ptr", "n"), 256, "scale.hip", defines, ("ptr", "i32"))


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "scale.hip").write_text(SOURCE)
    (folder / "factor.h").write_text("#pragma once\n")
    (folder / "other.h").write_text("")
    return folder


def fake_compiler(path: Path, version: str = "clang version 21.0.0", body: str = "") -> Path:
    """A program that answers what a compiler is asked and runs ``body`` where it is to compile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"""#!/bin/sh
case $1 in
--version) echo '{version}'; echo InstalledDir: {path.parent};;
--print-targets) echo amdgcn - AMD GCN GPUs;;
--print-prog-name=*) echo ${{1#*=}};;
*) {body or ":"};;
esac
"""
    )
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without compilers; the folder on its PATH, with the shell's own programs behind it."""
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(toolchain, "ROCM_DEFAULT", tmp_path / "none")
    for variable in (*toolchain.ROCM_VARIABLES, hip_compiler.COMPILER_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    return folder


def test_hipcc_of_a_recent_rocm_comes_before_clang(bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clang = fake_compiler(bare / "clang-22", "clang version 22.1.0")
    fake_compiler(tmp_path / "old" / "bin" / "hipcc", "AMD clang version 18.0.0")
    new = fake_compiler(tmp_path / "new" / "bin" / "hipcc", "HIP version: 7.0.1\nAMD clang version 20.0.0")
    monkeypatch.setenv("ROCM_PATH", str(tmp_path / "old"))
    assert find_compiler().command == clang  # the hipcc there does not know gfx950
    monkeypatch.setenv("ROCM_PATH", str(tmp_path / "new"))
    assert find_compiler() == HipCompiler(new, new, "HIP version: 7.0.1, clang version 20.0.0")


def test_the_clang_behind_hipcc_is_the_one_that_assembles(bare: Path, tmp_path: Path) -> None:
    clang = fake_compiler(tmp_path / "llvm" / "bin" / "clang")
    hipcc = fake_compiler(bare / "hipcc")
    hipcc.write_text(hipcc.read_text().replace(f"InstalledDir: {bare}", f"InstalledDir: {clang.parent}"))
    assert find_compiler().clang == clang


def test_a_compiler_that_is_named_is_taken_or_refused(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_compiler(bare / "clang-22")
    named = fake_compiler(tmp_path / "mine" / "clang")
    monkeypatch.setenv("MXFP4_HIP_COMPILER", str(named))
    assert find_compiler().command == named
    monkeypatch.setenv("MXFP4_HIP_COMPILER", str(tmp_path / "gone"))
    with pytest.raises(InputError, match="gone does not compile for gfx950: name a hipcc, or a clang 20 or newer"):
        find_compiler()


def test_where_there_is_none_the_error_says_what_to_install(bare: Path) -> None:
    fake_compiler(bare / "clang", "clang version 19.1.7")
    with pytest.raises(InputError, match="no HIP compiler: install ROCm 7 or newer, or clang 20 or newer"):
        find_compiler()


def test_a_clang_without_the_amdgpu_target_is_none(bare: Path) -> None:
    path = fake_compiler(bare / "clang")
    path.write_text(path.read_text().replace("amdgcn - AMD GCN GPUs", "x86-64"))
    assert probe_compiler(str(path)) is None


def test_linker_is_the_one_that_the_compiler_would_start(bare: Path) -> None:
    compiler = probe_compiler(str(fake_compiler(bare / "clang")))
    assert compiler is not None
    assert compiler.linker() is None
    linker = fake_compiler(bare / "ld.lld")
    assert compiler.linker() == str(linker)


COMPILER = HipCompiler(Path("hipcc"), Path("clang"), "clang version 20.0.0")


def test_everything_that_decides_a_build_is_in_its_key(sources: Path) -> None:
    def key(defines: Mapping[str, int] | None = None, arch: str = "gfx950", version: str = COMPILER.version) -> str:
        compiler = HipCompiler(Path("elsewhere"), Path("elsewhere"), version)
        return build_key(kernel(**defines or {"A": 1, "B": 2}), arch, compiler, sources)

    first = key()
    assert key({"B": 2, "A": 1}) == first
    different = {key({"A": 1}), key({"A": 2, "B": 2}), key(arch="gfx942"), key(version="clang version 21.0.0")}
    assert len(different | {first}) == 5
    (sources / "other.h").write_text("int unused;")
    assert key() == first
    (sources / "factor.h").write_text("#pragma once\n#define FACTOR 2\n")
    assert key() != first


def test_key_does_not_depend_on_where_the_sources_lie_or_how_lines_end(sources: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in sources.iterdir():
        (copy / path.name).write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert build_key(kernel(), "gfx950", COMPILER, copy) == build_key(kernel(), "gfx950", COMPILER, sources)


def test_includes_are_followed_once(sources: Path) -> None:
    (sources / "factor.h").write_text('#  include "other.h"\n#include "scale.hip"\n#include "absent.h"\n')
    assert set(read_sources("scale.hip", sources)) == {"scale.hip", "factor.h", "other.h"}
    with pytest.raises(InputError, match=r"absent\.hip: no such HIP source"):
        read_sources("absent.hip", sources)


@needs_compiler
def test_macros_become_code(sources: Path) -> None:
    build = compile_hip(kernel(FACTOR=3), folder=sources)
    assert "0x40400000" in build.assembly  # 3.0f
    assert '.amdgcn_target "amdgcn-amd-amdhsa--gfx950"' in build.assembly
    assert ".symbol:         scale.kd" in build.assembly
    assert build.compile_s > 0
    assert "0x40a00000" in compile_hip(kernel(FACTOR=5), folder=sources).assembly


@needs_compiler
def test_an_error_names_file_and_line_and_keeps_all_that_was_said(sources: Path, tmp_path: Path) -> None:
    with pytest.raises(HipCompileError) as caught:
        compile_hip(kernel(), folder=sources, log=tmp_path / "log")
    assert str(caught.value) == "scale.hip:4: use of undeclared identifier 'FACTOR'"
    assert "1 error generated" in caught.value.output
    assert (tmp_path / "log").read_text() == caught.value.output


@needs_compiler
def test_more_lds_than_there_is_is_a_compile_error(sources: Path) -> None:
    text = SOURCE.replace("int i", "__attribute__((shared)) static float x[50000]; x[n] = n; int i")
    (sources / "scale.hip").write_text(text.replace("FACTOR", "x[n + 1]"))
    with pytest.raises(HipCompileError, match=r"local memory \(200000\) exceeds limit \(163840\)"):
        compile_hip(kernel(), folder=sources)


@needs_compiler
def test_code_object_is_what_the_compiler_makes_of_the_source_in_one_step(sources: Path, tmp_path: Path) -> None:
    compiler = find_compiler()
    if compiler.linker() is None:
        pytest.skip("no ld.lld")
    (sources / "direct.hip").write_text(SOURCE)
    arguments = [flag for flag in hip_compiler.FLAGS if flag != "-S"]
    direct = tmp_path / "direct.co"
    subprocess.run(
        [str(compiler.command), *arguments, "--offload-arch=gfx950", "-DFACTOR=3", "--no-gpu-bundle-output",
         str(sources / "direct.hip"), "-o", str(direct)],
        check=True,
    )  # fmt: skip
    made = assemble(compile_hip(kernel(FACTOR=3), folder=sources).assembly)
    assert made[:4] == b"\x7fELF"
    assert allocated(made) == allocated(direct.read_bytes())


def allocated(elf: bytes) -> dict[int, bytes]:
    """Content by address of the sections of a code object that are loaded and hold code or constants (ELF64)."""
    table, size, count = (int.from_bytes(elf[at : at + n], "little") for at, n in ((0x28, 8), (0x3A, 2), (0x3C, 2)))
    found: dict[int, bytes] = {}
    for i in range(count):
        header = elf[table + size * i : table + size * (i + 1)]
        kind, (flags, address, offset, length) = (
            int.from_bytes(header[4:8], "little"),
            (int.from_bytes(header[at : at + 8], "little") for at in (8, 16, 24, 32)),
        )
        if kind == 1 and flags & 2:  # PROGBITS, ALLOC: .text and the kernel descriptors of .rodata
            found[address] = elf[offset : offset + length]
    assert found
    return found


@needs_compiler
def test_text_that_is_no_assembly_is_an_error_of_one_line() -> None:
    with pytest.raises(HipCompileError, match=r"^code object: kernel\.s:1: invalid instruction$"):
        assemble("nonsense here\n")


def test_a_build_that_does_not_end_is_timed_out(sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = probe_compiler(str(fake_compiler(tmp_path / "clang", body="sleep 60; exit 1")))
    monkeypatch.setattr(hip_compiler, "TIMEOUT_S", 0.2)
    with pytest.raises(TimedOutError, match=r"scale\.hip: compilation took longer"):
        compile_hip(kernel(), compiler=slow, folder=sources)


@pytest.mark.parametrize(
    "body, reason",
    [
        ("kill -9 $$", "the compiler was killed"),
        ("kill -TERM $$", "the compiler was killed"),
        ("exit 143", "the compiler was killed"),  # a wrapper's word for SIGTERM
        (
            "echo \"error: unable to open output file 'kernel.s': 'No space left on device'\"; exit 1",
            "No space left on device",
        ),
        ("echo 'LLVM ERROR: out of memory'; exit 134", "out of memory"),
        ("echo 'clang: error: unable to execute command: Killed'; exit 254", "Killed"),
        (":", r"wrote no kernel\.s"),
        ("mkdir kernel.s", r"wrote no kernel\.s"),
        (": >kernel.s", "wrote no assembly of scale"),
        ("echo junk scale: >kernel.s", "wrote no assembly of scale"),
        ("printf '\\377\\376' >kernel.s", "wrote no assembly of scale"),
    ],
)
def test_what_befalls_a_compiler_is_no_fault_of_the_source(
    sources: Path, tmp_path: Path, body: str, reason: str
) -> None:
    unlucky = probe_compiler(str(fake_compiler(tmp_path / "clang", body=body)))
    with pytest.raises(KernelError, match=rf"^scale\.hip: .*{reason}") as caught:
        compile_hip(kernel(), compiler=unlucky, folder=sources)
    assert type(caught.value) is KernelError  # HipCompileError and TimedOutError are remembered
    assert caught.value.outcome == "crashed"


def test_a_temporary_folder_without_room_is_named_with_the_cure(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    compiler = probe_compiler(str(fake_compiler(tmp_path / "clang")))
    with pytest.raises(InputError, match=r"gone/\S+: No such file or directory; make room there or set TMPDIR"):
        compile_hip(kernel(), compiler=compiler, folder=sources)


@needs_compiler
def test_variables_that_point_elsewhere_change_nothing(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (sources / "factor.h").write_text("#define FACTOR 3\n")
    plain = compile_hip(kernel(), folder=sources).assembly
    (tmp_path / "factor.h").write_text("#error another header of that name\n")
    monkeypatch.chdir(tmp_path)
    for name in ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"):
        monkeypatch.setenv(name, str(tmp_path))
    for name in ("TMPDIR", "GCC_EXEC_PREFIX", "COMPILER_PATH"):
        monkeypatch.setenv(name, str(tmp_path / "gone"))
    assert compile_hip(kernel(), folder=sources).assembly == plain
    if find_compiler().linker() is not None:
        assert assemble(plain)[:4] == b"\x7fELF"


def test_a_compiler_named_from_the_current_folder_works_in_another(
    bare: Path, sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fake_compiler(tmp_path / "bin" / "clang-21", body="echo scale: >kernel.s")
    monkeypatch.setenv("MXFP4_HIP_COMPILER", "bin/clang-21")
    assert compile_hip(kernel(), folder=sources).assembly == "scale:\n"
    monkeypatch.delenv("MXFP4_HIP_COMPILER")
    monkeypatch.setenv("PATH", f"bin:{bare}")
    assert compile_hip(kernel(), folder=sources).assembly == "scale:\n"


def test_of_endless_output_the_beginning_is_kept(sources: Path, tmp_path: Path) -> None:
    body = (
        "echo 'scale.hip:1:1: error: first'; i=0; while [ $i -lt 9000 ]; do i=$((i+1)); echo 'error: x'; done; exit 1"
    )
    chatty = probe_compiler(str(fake_compiler(tmp_path / "clang", body=body)))
    with pytest.raises(HipCompileError, match=r"^scale\.hip:1: first$") as caught:
        compile_hip(kernel(), compiler=chatty, folder=sources)
    assert len(caught.value.output) == hip_compiler.OUTPUT_LENGTH


def test_variables_that_add_flags_do_not_reach_the_compiler(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIPCC_COMPILE_FLAGS_APPEND", "-O0")
    monkeypatch.setenv("HIP_PLATFORM", "nvidia")
    shows = fake_compiler(
        tmp_path / "clang", body='echo "scale: $HIP_PLATFORM,$HIPCC_COMPILE_FLAGS_APPEND,$PATH" >kernel.s'
    )
    build = compile_hip(kernel(), compiler=probe_compiler(str(shows)), folder=sources)
    assert build.assembly == f"scale: amd,,{os.environ['PATH']}\n"


@pytest.mark.parametrize(
    "output, line",
    [
        (
            "/tmp/x/gemm.hip:7:3: error: static assertion failed\n1 error generated",
            "gemm.hip:7: static assertion failed",
        ),
        ("gemm.hip:7:3: fatal error: 'x.h' file not found", "gemm.hip:7: 'x.h' file not found"),
        ("warning: unused\nfatal error: error in backend: ran out of registers", "ran out of registers"),
        ("ld.lld: error: undefined symbol: __ocml_exp_f32", "undefined symbol: __ocml_exp_f32"),
        ("Assertion `x' failed.\nPLEASE submit a bug report", "Assertion `x' failed."),
        ("nothing of note", ""),
    ],
)
def test_the_line_that_says_what_went_wrong_is_found(output: str, line: str) -> None:
    assert diagnostic(output) == line
