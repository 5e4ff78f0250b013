"""search.commands.doctor: every check says what was found and how to cure it."""

from __future__ import annotations

from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from result_rows import only, predicted, results

from kernels.device import GFX950, DeviceKey
from kernels.families.staged_hip import StagedHipConfig
from kernels.rocm.compiler import HipCompiler, find_compiler
from kernels.tables.file import write_table
from kernels.tables.rows import TableRow, TunedTable
from search.commands import doctor
from search.commands.doctor import Check, examine, next_step
from search.commands.export import table_rows
from search.device.inventory import GpuFacts
from search.device.product import Product
from search.terminal import TextTable


def check(name: str, results_folder: Path = Path("results"), storage: str | None = None) -> Check:
    return only([one for one in examine(results_folder, storage) if one.name == name])


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without a GPU, whose project has no tables yet; the folder for them."""
    folder = tmp_path / "tables"
    folder.mkdir()
    monkeypatch.setattr(doctor, "tables_folder", lambda: folder)
    monkeypatch.setattr(doctor, "local_device", lambda index=None: None)
    monkeypatch.setattr(doctor, "look", lambda: ())
    monkeypatch.delenv("MXFP4_TABLES", raising=False)
    return folder


def test_every_check_that_is_not_ok_has_a_cure(tmp_path: Path) -> None:
    for one in examine(tmp_path):
        assert one.status in ("ok", "missing", "warning")
        assert bool(one.cure) == (one.status != "ok"), one


def test_examining_leaves_nothing_behind(tmp_path: Path, offline: Path) -> None:
    examine(tmp_path / "results")
    assert list(tmp_path.iterdir()) == [offline]


@pytest.mark.parametrize(
    ("version", "status"),
    [
        ("3.6.0", "ok"),
        ("3.9.2", "ok"),
        ("3.9.0+rocm7", "ok"),
        ("3.5.1", "warning"),
        ("3.10.0", "warning"),
        ("4.0", "warning"),
    ],
)
def test_triton_is_ok_from_3_6_to_3_9(monkeypatch: pytest.MonkeyPatch, version: str, status: str) -> None:
    monkeypatch.setattr(doctor, "triton", SimpleNamespace(__version__=version))
    assert check("triton").status == status


def test_old_torch_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.torch, "__version__", "2.8.1+cpu")
    assert (check("torch").status, check("torch").cure) == ("warning", "use torch 2.9 or newer")


def test_compiler_for_gfx950_needs_the_amd_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check("gfx950 code").status == "ok"
    monkeypatch.setattr(doctor, "backends", {})
    assert check("gfx950 code").status == "missing"


def test_missing_hip_compiler_is_cured_by_installing_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MXFP4_HIP_COMPILER", str(tmp_path / "nothing"))
    found = check("hip compiler")
    assert found.status == "missing"
    assert found.detail.endswith(f"MXFP4_HIP_COMPILER={tmp_path}/nothing does not compile for gfx950")
    assert found.cure.startswith("name a hipcc, or a clang 20 or newer")


def test_hip_compiler_without_a_linker_serves_the_simulator_only(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = HipCompiler(Path("/rocm/bin/hipcc"), Path("/rocm/llvm/bin/clang"), "clang version 20.0.0")
    monkeypatch.setattr(doctor, "find_compiler", lambda: compiler)
    assert check("hip compiler").status == "warning"
    assert "not for a GPU" in check("hip compiler").detail
    monkeypatch.setattr(HipCompiler, "linker", lambda self: "/rocm/llvm/bin/ld.lld")
    assert check("hip compiler") == Check("hip compiler", "ok", "/rocm/bin/hipcc (clang version 20.0.0)")


def test_disassembler_of_an_old_llvm_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "llvm-objdump"
    program.write_text("#!/bin/sh\necho LLVM version 19.1.0\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("kernels.rocm.toolchain.ROCM_DEFAULT", tmp_path / "none")
    assert check("llvm-objdump").status == "missing"
    program.write_text("#!/bin/sh\necho LLVM version 20.1.0\n")
    assert check("llvm-objdump") == Check("llvm-objdump", "ok", str(program))


def test_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    assert check("storage", tmp_path / "new" / "results").status == "ok"
    (tmp_path / "file").write_text("")
    found = check("storage", tmp_path / "file")
    assert (found.status, found.cure) == ("warning", "name another folder with --results")


def test_database_is_not_contacted() -> None:
    assert check("storage", storage="postgresql://nowhere/db").status == "ok"


def test_namesake_distribution_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "0.4" if name == "kernels" else real(name))
    found = check("import name")
    assert found.status == "warning" and "Hugging Face's 'kernels' 0.4" in found.detail


def test_other_package_imported_in_place_of_ours_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "kernels", SimpleNamespace(__file__="/elsewhere/kernels/__init__.py"))
    assert check("import name").detail == "'kernels' is /elsewhere/kernels"


def test_tables_say_how_many_rows_are_reachable_and_stale(offline: Path) -> None:
    assert check("tables").status == "missing"
    rows = table_rows(results(predicted(9.0), predicted(9.0, M=32)))
    write_table(offline / "gfx950.yaml", TunedTable(GFX950, tuple(rows)))
    half = table_rows(results(predicted(9.0, cu_count=128)))
    write_table(offline / "gfx950-128cu.yaml", TunedTable(DeviceKey("gfx950", 128), tuple(half)))
    old = table_rows(results(predicted(9.0, source_hash="000000000000")))
    write_table(offline / "gfx950-old.yaml", TunedTable(GFX950, tuple(old)))
    (offline / "torn.yaml").write_text("schema: 1\n")
    assert check("table gfx950.yaml") == Check("table gfx950.yaml", "ok", "2 rows for gfx950-256cu, all reachable")
    unreachable = check("table gfx950-128cu.yaml")
    assert unreachable.status == "warning"
    assert unreachable.detail == "1 row for gfx950-128cu: none is reachable on gfx950-256cu"
    assert "1 older than the kernels" in check("table gfx950-old.yaml").detail
    assert "lacks device, entries" in check("table torn.yaml").detail


def test_rows_whose_kernels_cannot_be_had_here_are_not_called_reachable(
    offline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fused, old = table_rows(results(predicted(9.0), predicted(9.0, M=32, source_hash="000000000000")))
    native = [
        TableRow(M, 7168, 2048, "staged_hip", StagedHipConfig(), "predicted", True, fused.made, predicted_us=9.0)
        for M in (64, 128)
    ]
    write_table(offline / "gfx950.yaml", TunedTable(GFX950, (fused, *native)))
    write_table(offline / "gfx950-old.yaml", TunedTable(GFX950, (old, *native)))
    monkeypatch.setattr("kernels.rocm.compiler.find_compiler", lambda: HipCompiler(Path("h"), Path("c"), "clang 22"))
    assert check("table gfx950.yaml").detail.startswith("3 rows for gfx950-256cu, all reachable")

    monkeypatch.setenv("MXFP4_HIP_COMPILER", "/nothing")
    monkeypatch.setattr("kernels.rocm.compiler.find_compiler", find_compiler)
    found = check("table gfx950.yaml")
    reason = "MXFP4_HIP_COMPILER=/nothing does not compile for gfx950"
    assert found.status == "warning"
    assert found.detail.startswith(f"3 rows for gfx950-256cu, 1 reachable; {reason}")
    assert found.cure.startswith("name a hipcc, or a clang 20 or newer") and found.detail.count(reason) == 1
    aged = check("table gfx950-old.yaml")
    assert aged.detail.startswith(f"3 rows for gfx950-256cu, 1 reachable; {reason}; ")
    assert aged.detail.endswith("older than the kernels") and aged.cure.endswith("; sweep again, then export")


def test_a_table_of_another_architecture_is_no_warning_unless_the_user_named_it(
    offline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_table(offline / "sm_90.yaml", TunedTable(DeviceKey("sm_90", 132)))
    assert check("table sm_90.yaml").status == "ok"
    assert check("table sm_90.yaml").detail == "0 rows for sm_90-132cu, for machines that have it"
    mine = offline.parent / "mine.yaml"
    write_table(mine, TunedTable(DeviceKey("sm_90", 132)))
    monkeypatch.setenv("MXFP4_TABLES", str(mine))
    assert check("table mine.yaml").status == "warning"


def test_code_objects_are_named_by_their_folder_or_with_the_cure(
    code_objects: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = f"34 kernels for shuffled weights in {code_objects}"
    assert check("aiter kernels") == Check("aiter kernels", "ok", found)
    monkeypatch.setenv("MXFP4_AITER", str(tmp_path / "nothing"))
    missing = check("aiter kernels")
    assert missing.status == "missing"
    assert missing.detail.startswith("staged_ck is left out: no ")
    assert missing.cure == "set MXFP4_AITER to an AITER install or an unpacked amd-aiter wheel"


def test_a_missing_hip_compiler_names_the_family_that_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("MXFP4_HIP_COMPILER", raising=False)
    monkeypatch.setattr("kernels.rocm.toolchain.ROCM_DEFAULT", Path("/nonexistent"))
    missing = check("hip compiler")
    assert missing.status == "missing"
    assert missing.detail.startswith("staged_hip is left out: ")


def test_the_cache_is_named_and_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = check("cache")
    assert (found.status, found.cure) == ("ok", "")
    assert f"{tmp_path}/cache/mxfp4-tune" in found.detail
    assert not (tmp_path / "cache").exists()


def test_a_cache_that_cannot_be_written_names_its_stand_in_and_the_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = check("cache")
    assert (found.status, found.cure) == ("warning", "set XDG_CACHE_HOME to a folder that can be written")
    assert "file/mxfp4-tune cannot be written (Not a directory)" in found.detail
    assert f"kept in {tmp_path}/mxfp4-tune-cache-" in found.detail


def test_without_any_place_for_compiled_kernels_the_cure_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("kernels.disk._stand_in", lambda: tmp_path / "file" / "none")
    found = check("cache")
    assert (found.status, found.cure) == ("warning", "set XDG_CACHE_HOME to a folder that can be written")
    assert "nor in a temporary folder" in found.detail


@pytest.fixture
def rocm(monkeypatch: pytest.MonkeyPatch) -> GpuFacts:
    """A machine with an MI355X."""
    gpu = GpuFacts(0, GFX950, "", "0000:75:00.0", Product("MI355X", "SPX", "NPS1", 2400))
    monkeypatch.setattr(doctor, "look", lambda: (gpu,))
    monkeypatch.setattr(doctor.torch.version, "hip", "7.1.25424")
    return gpu


@pytest.mark.usefixtures("rocm")
def test_a_gpu_is_named_by_its_product_where_torch_has_no_name() -> None:
    assert check("gpu 0").detail == "gfx950-256cu, no name, MI355X-SPX-NPS1-2400MHz, 0000:75:00.0"


def test_gpus_of_two_kinds_are_named(rocm: GpuFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "look", lambda: (rocm, GpuFacts(1, DeviceKey("gfx950", 32), "")))
    assert (check("gpu kinds").status, "GPU 1 is gfx950-32cu" in check("gpu kinds").detail) == ("warning", True)


@pytest.mark.usefixtures("rocm")
@pytest.mark.parametrize("hip, status", [("7.1.25424", "ok"), ("7.2.26015", "warning"), ("7.14.1", "ok")])
def test_the_rocm_that_corrupts_graphs_is_named(monkeypatch: pytest.MonkeyPatch, hip: str, status: str) -> None:
    monkeypatch.setattr(doctor.torch.version, "hip", hip)
    assert check("graphs").status == status


@pytest.mark.usefixtures("rocm")
def test_what_compiles_the_launcher_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    monkeypatch.setattr(doctor.sysconfig, "get_paths", lambda: {"include": "/nowhere"})
    found = check("launcher")
    assert (found.status, found.detail) == ("missing", "no C compiler and no Python.h: no kernel can be launched")
    assert next_step([found]) == "cure `launcher` first: apt-get install gcc python3-dev"


@pytest.mark.usefixtures("rocm")
@pytest.mark.parametrize("soft, status", [(0, "ok"), (-1, "warning")])
def test_core_dumps_that_are_on_are_named(monkeypatch: pytest.MonkeyPatch, soft: int, status: str) -> None:
    monkeypatch.setattr(doctor.resource, "getrlimit", lambda which: (soft, -1))
    assert check("core dumps").status == status


def test_an_amd_machine_on_which_torch_sees_nothing_is_no_machine_without_a_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        doctor, "why_no_gpu", lambda: "this machine has an AMD GPU, but torch 2.13 is a CPU build; do so"
    )
    found = check("gpu")
    assert (found.status, found.cure) == ("warning", "do so")
    assert next_step([found]) == "cure `gpu` first: do so"


def test_an_aiter_that_is_installed_and_cannot_be_imported_is_not_ok(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_version", lambda name: "0.1.10")
    monkeypatch.setattr(doctor, "aiter_installed", lambda: False)
    assert check("aiter").status == "warning"


MI355X = GpuFacts(0, GFX950, "", "0000:75:00.0", Product("MI355X", "SPX", "NPS1", 2400))
CPX = replace(MI355X, key=DeviceKey("gfx950", 32), product=Product("MI355X", "CPX", "NPS1", 2400))
H200 = GpuFacts(0, DeviceKey("sm_90", 132), "NVIDIA H200")
SHORT = "run_search.py sweep 16x2112x7168 --target "
ON_GPU = f"{SHORT}local --trials 60"
# GPUs, torch's ROCm and CUDA, whether this GPU was calibrated, why torch sees none; the next step.
STATES = {
    "no GPU": ((), None, None, False, None, f"{SHORT}gfx950"),
    "no GPU for a CUDA torch": ((), None, "13.0", False, None, f"{SHORT}gfx950"),
    "NVIDIA": ((H200,), None, "13.0", False, None, ON_GPU),
    "MI355X": ((MI355X,), "7.1.25424", None, False, None, "run_search.py calibrate"),
    "MI355X, calibrated": ((MI355X,), "7.1.25424", None, True, None, ON_GPU),
    "eight of them": (tuple(replace(MI355X, index=i) for i in range(8)), "7.2.26015", None, True, None, ON_GPU),
    "CPX": (tuple(replace(CPX, index=i) for i in range(8)), "7.1.25424", None, False, None, "run_search.py calibrate"),
    "two kinds": ((MI355X, replace(CPX, index=1)), "7.1.25424", None, True, None, ON_GPU),
    "MI355X and a CPU torch": (
        (), None, None, False, "this machine has an AMD GPU, but torch 2.13.0+cpu is a CPU build; `make clean`",
        "cure `gpu` first: `make clean`",
    ),
    "MI355X outside of the container": (
        (), "7.1.25424", None, False, "the AMD GPU is not passed into this container; start it with --device=/dev/kfd",
        "cure `gpu` first: start it with --device=/dev/kfd",
    ),
}  # fmt: skip


@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
def test_each_machine_is_told_its_next_command_below_a_table_that_80_columns_hold(
    state: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus, hip, cuda, calibrated, absence, step = state
    monkeypatch.setattr(doctor, "look", lambda: gpus)
    monkeypatch.setattr(doctor, "local_device", lambda index=None: gpus[0].key if gpus else None)
    monkeypatch.setattr(doctor.torch.version, "hip", hip)
    monkeypatch.setattr(doctor.torch.version, "cuda", cuda)
    monkeypatch.setattr(doctor, "why_no_gpu", lambda: absence)
    calibration = SimpleNamespace(date="2026-11-30", name="MI355X") if calibrated else None
    monkeypatch.setattr(doctor, "load_calibration", lambda device: calibration)
    monkeypatch.setattr(doctor, "_launcher", lambda: Check("launcher", "ok", "/usr/bin/gcc"))
    checks = examine(tmp_path)
    assert next_step(checks) == step
    table = TextTable(("status", "what", "found", "cure"), tuple((c.status, c.name, c.detail, c.cure) for c in checks))
    assert table.left_out(80) == []
    assert all(bool(one.cure) == (one.status != "ok") for one in checks)
