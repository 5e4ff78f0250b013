"""What this machine can do: one line a capability, with the cure where something is missing."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

import torch
import triton
from triton.backends import backends
from triton.backends.compiler import GPUTarget

import kernels
from kernels.device import GFX950, DeviceKey, local_device
from kernels.disk import default_cache, real_path, tables_folder, writable_cache
from kernels.errors import InputError
from kernels.families.aiter import installed as aiter_installed
from kernels.rocm.code_objects import find_catalogue
from kernels.rocm.compiler import LINKER, find_compiler
from kernels.rocm.toolchain import LLVM_OLDEST, llvm_tool
from kernels.tables.file import load_table
from kernels.tables.rows import OLDEST_TRITON, TunedTable, is_stale, minor_numbers
from kernels.tables.sources import user_tables
from kernels.wording import counted
from search.device.inventory import GpuFacts, alike, look, others_note
from search.device.telemetry import ABSENT_NOTE, has_amdsmi
from search.device.visible import C_CURE, why_no_gpu
from search.gfx950.model.calibrated import load_calibration
from search.space.available import config_absence
from search.workers.allocator import PACKAGE, fast_malloc
from search.workers.cores import lent_cores

Status = Literal["ok", "missing", "warning"]
TRITON_RANGE = (OLDEST_TRITON, (3, 9))  # tested minor versions, both ends included
EXTRAS = (  # package, the extra that brings it, what needs it
    ("matplotlib", "plot", "inspect --plot"),
    ("plotly", "report", "report --html"),
    ("psycopg", "postgres", "--storage postgresql://..."),
    ("ray", "ray", "--engine ray"),
)
TORCH_FROM = (2, 9)
PYTHON_FROM = (3, 10)
BLOCKING = (("gpu", "warning"), ("launcher", "missing"))  # checks without which nothing is measured
DOUBTFUL_ROCM = (7, 2)  # https://github.com/ROCm/clr/issues/279, https://github.com/vllm-project/vllm/pull/46386


@dataclass(frozen=True)
class Check:
    """One capability.

    Args:
        status: ``ok``, ``missing`` (optional and absent) or ``warning`` (present but doubtful).
        cure: What to do about it; "" where the status is ok.
    """

    name: str
    status: Status
    detail: str
    cure: str = ""


def examine(results: Path, storage: str | None = None) -> list[Check]:
    """Every check, in the order in which a user would cure them.

    Nothing is left behind but the stand-in of a cache that cannot be written.

    Args:
        results: Folder of the results; only whether it can be written is tested.
        storage: Where studies would live instead; a database server is not contacted.
    """
    return [
        _python(), _torch(), _triton(), *_gpus(), *_measuring(), _cross_compiler(), _hip_compiler(), _objdump(),
        *_aiter(), *_calibration(), _allocator(), _optuna(results, storage), _cache(), _packages("pandas", "pyarrow"),
        *(_extra(*one) for one in EXTRAS), _namesake(), *_tables(),
    ]  # fmt: skip


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def _python() -> Check:
    version = platform.python_version()
    detail = f"{version}, {counted(lent_cores(), 'CPU core')}"
    if minor_numbers(version) >= PYTHON_FROM:
        return Check("python", "ok", detail)
    return Check("python", "warning", detail, f"use Python {_dotted(PYTHON_FROM)} or newer")


def _torch() -> Check:
    toolkit = f"ROCm {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"
    detail = f"{torch.__version__}, {toolkit if torch.version.hip or torch.version.cuda else 'CPU only'}"
    if minor_numbers(torch.__version__) >= TORCH_FROM:
        return Check("torch", "ok", detail)
    return Check("torch", "warning", detail, f"use torch {_dotted(TORCH_FROM)} or newer")


def _triton() -> Check:
    oldest, newest = TRITON_RANGE
    if oldest <= minor_numbers(triton.__version__) <= newest:
        return Check("triton", "ok", triton.__version__)
    return Check(
        "triton", "warning", f"{triton.__version__} is untested", f"use {_dotted(oldest)} to {_dotted(newest)}"
    )


def _allocator() -> Check:
    chosen = fast_malloc()
    if "LD_PRELOAD" in chosen:
        return Check("malloc", "ok", f"compiling processes preload {chosen['LD_PRELOAD']}")
    if not chosen:
        return Check("malloc", "ok", "as your environment chooses")
    return Check("malloc", "missing", "no tcmalloc, which compiles faster", f"apt-get install {PACKAGE}")


def _gpus() -> Iterator[Check]:
    gpus = look()
    if not gpus:
        reason = why_no_gpu()
        cure = f"search offline with --target {GFX950.arch}; measure elsewhere"
        found, _, mended = (reason or f"none that torch can use; {cure}").partition("; ")
        yield Check("gpu", "missing" if reason is None else "warning", found, mended)
    for gpu in gpus:
        yield Check(f"gpu {gpu.index}", "ok", f"{gpu.key}, {gpu.name or 'no name'}" + _placed(gpu))
    left = others_note(gpus, alike(gpus))
    if left is not None:
        yield Check("gpu kinds", "warning", left, "partition all alike, or mask with HIP_VISIBLE_DEVICES")


def _placed(gpu: GpuFacts) -> str:
    return "".join(f", {fact}" for fact in (gpu.product, gpu.address) if fact is not None)


def _measuring() -> Iterator[Check]:
    """What a sweep on this machine's GPUs needs besides them; nothing where torch has no use for one."""
    if torch.version.hip is None and torch.version.cuda is None:
        return
    yield _launcher()
    yield _core_limit()
    if torch.version.hip is not None:
        yield _graphs(torch.version.hip)
        found, _, cure = ABSENT_NOTE.partition("; ")
        yield Check("telemetry", "ok", "amdsmi") if has_amdsmi() else Check("telemetry", "missing", found, cure)


def _launcher() -> Check:
    """Triton compiles what launches kernels, in C, at the first launch."""
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    headers = Path(sysconfig.get_paths()["include"]) / "Python.h"
    lacking = [name for name, there in (("C compiler", compiler), ("Python.h", headers.is_file())) if not there]
    if lacking:
        return Check("launcher", "missing", f"no {' and no '.join(lacking)}: no kernel can be launched", C_CURE)
    return Check("launcher", "ok", f"{compiler}, {headers}")


def _core_limit() -> Check:
    soft, _ = resource.getrlimit(resource.RLIMIT_CORE)
    if soft == 0:
        return Check("core dumps", "ok", "switched off")
    found = "on here; workers of a sweep switch them off, other programs that fault leave gigabytes each"
    return Check("core dumps", "warning", found, "ulimit -c 0; for a container --ulimit core=0")


def _graphs(hip: str) -> Check:
    if minor_numbers(hip) == DOUBTFUL_ROCM:
        found = f"ROCm {hip}: 7.2.0 to 7.2.3 corrupt captured graphs in some processes; replays are compared here"
        return Check("graphs", "warning", found, "use ROCm 7.1, or 7.2.4 and newer")
    return Check("graphs", "ok", f"ROCm {hip}")


def next_step(checks: Sequence[Check]) -> str:
    """The command to run next on this machine, or what has to be cured before."""
    blocking = [check for check in checks if (check.name, check.status) in BLOCKING]
    if blocking:
        return f"cure `{blocking[0].name}` first: {blocking[0].cure}"
    if any((check.name, check.status) == ("calibration", "missing") for check in checks):
        return "run_search.py calibrate"
    target = "local --trials 60" if any(check.name.startswith("gpu ") for check in checks) else GFX950.arch
    return f"run_search.py sweep 16x2112x7168 --target {target}"


def _cross_compiler() -> Check:
    target = GPUTarget("hip", GFX950.arch, 64)
    name, products = f"{GFX950.arch} code", " and ".join(GFX950.architecture.products)
    if "amd" in backends and backends["amd"].compiler.supports_target(target):
        return Check(name, "ok", f"Triton compiles for {products} here; no such GPU is needed")
    found = f"this Triton has no AMD backend: nothing can be compiled for {products}"
    return Check(name, "missing", found, "pip install triton, which has both backends")


def _hip_compiler() -> Check:
    try:
        compiler = find_compiler()
    except InputError as error:
        found, _, cure = str(error).partition(": ")
        return Check("hip compiler", "missing", f"staged_hip is left out: {found}", cure)
    if compiler.linker() is None:
        found = f"{compiler}, without {LINKER}: it compiles for the simulator, not for a GPU"
        return Check("hip compiler", "warning", found, "install lld of the same LLVM")
    return Check("hip compiler", "ok", str(compiler))


def _objdump() -> Check:
    found = llvm_tool("llvm-objdump")
    if found is not None:
        return Check("llvm-objdump", "ok", str(found))
    cure = f"install ROCm, or LLVM {LLVM_OLDEST} or newer"
    return Check("llvm-objdump", "missing", "prebuilt code objects cannot be read", cure)


def _aiter() -> Iterator[Check]:
    """AITER's code objects, which are read from files, and its Python package, which runs on a GPU."""
    try:
        catalogue = find_catalogue()
        detail = f"{counted(len(catalogue.preshuffled), 'kernel')} for shuffled weights in {catalogue.folder}"
        yield Check("aiter kernels", "ok", detail)
    except InputError as error:
        found, _, cure = str(error).partition(": ")
        yield Check("aiter kernels", "missing", f"staged_ck is left out: {found}", cure)
    version = _version("amd-aiter")
    if version is not None and not aiter_installed():  # an editable install that only its own shells find
        found = f"{version} is installed and cannot be imported: the family aiter is left out"
        yield Check("aiter", "warning", found, "pip install amd-aiter here, or put its folder on PYTHONPATH")
    elif version is None and not aiter_installed():
        yield Check("aiter", "missing", "the family aiter is left out", "pip install amd-aiter on ROCm")
    else:
        yield Check("aiter", "ok", version or "importable, not installed by pip")


def _calibration() -> Iterator[Check]:
    """Whether predictions for this machine's GPU, or for ``GFX950``, use constants that were measured."""
    device = local_device() or GFX950
    try:
        found = load_calibration(device)
    except InputError as error:
        detail, _, cure = str(error).partition("; ")
        yield Check("calibration", "warning", detail, cure)
        return
    if found is not None:
        yield Check("calibration", "ok", f"{device} was measured on {found.date}, {found.name}")
    elif device.arch == GFX950.arch and local_device() is not None:
        yield Check("calibration", "missing", "predictions use published timings", "run_search.py calibrate")


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _optuna(results: Path, storage: str | None) -> Check:
    version = f"Optuna {_version('optuna')}"
    if storage is not None and "://" in storage:
        return Check("storage", "ok", f"{version}, {storage.split('://')[0]} database, not contacted")
    where = results if storage is None else Path(storage).parent
    refused = _refusal(where)
    if refused is None:
        return Check("storage", "ok", f"{version}, {where} can be written")
    return Check("storage", "warning", f"{version}, {where}: {refused}", "name another folder with --results")


def _refusal(where: Path) -> str | None:
    """Why nothing can be written into ``where``, which need not be there yet; None if it can."""
    try:
        folder = next(place for place in (real_path(where), *real_path(where).parents) if place.exists())
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return error.strerror or str(error)


def _cache() -> Check:
    """The folder of compiled kernels, or what serves in its place."""
    folder = default_cache()
    refused = _refusal(folder)
    if refused is None:
        return Check("cache", "ok", f"compiled kernels are kept in {folder}, which can be written")
    try:
        stand_in = writable_cache(folder)
    except InputError as error:
        found, _, cure = str(error).partition("; ")
        return Check("cache", "warning", found, cure)
    found = f"{folder} cannot be written ({refused}); compiled kernels are kept in {stand_in} instead"
    return Check("cache", "warning", found, "set XDG_CACHE_HOME to a folder that can be written")


def _packages(*names: str) -> Check:
    versions = {name: _version(name) for name in names}
    detail = ", ".join(f"{name} {version or 'absent'}" for name, version in versions.items())
    cure = "pip install the project's requirements" if None in versions.values() else ""
    return Check(names[0], "missing" if cure else "ok", detail, cure)


def _extra(package: str, extra: str, use: str) -> Check:
    """A package that one option needs."""
    version = _version(package)
    if version is None:
        return Check(package, "missing", f"only {use} needs it", f"pip install '.[{extra}]'")
    return Check(package, "ok", f"{package} {version}, for {use}")


def _namesake() -> Check:
    """Whether Hugging Face's distribution of the same import name is installed, and whose is imported."""
    mine = Path(__file__).resolve().parents[2] / "kernels"
    imported = Path(kernels.__file__).resolve().parent
    version = _version("kernels")
    if imported != mine:
        return Check(
            "import name", "warning", f"'kernels' is {imported}", f"run from {mine.parent}, or uninstall the other"
        )
    if version is None:
        return Check("import name", "ok", "'kernels' is this project's")
    detail = f"Hugging Face's 'kernels' {version} is installed under the same import name; this project's is in use"
    return Check("import name", "warning", detail, "keep it out of this environment: pip uninstall kernels")


def _tables() -> Iterator[Check]:
    device = local_device() or GFX950
    paths = [*user_tables(), *sorted(tables_folder().glob("*.yaml"))]
    if not paths:
        yield Check("tables", "missing", f"none in {tables_folder()}", "sweep, then export")
    for path in paths:
        yield _table(path, device)


def _table(path: Path, device: DeviceKey) -> Check:
    name = f"table {path.name}"
    try:
        table = load_table(path)
    except InputError as error:
        return Check(name, "warning", str(error), "correct the file, or take it out of the tables that are read")
    stale = sum(map(is_stale, table.rows))
    rows = f"{counted(len(table.rows), 'row')} for {table.device}"
    if table.device.arch != device.arch and path not in user_tables():  # one of the project's: there for others
        return Check(name, "ok", f"{rows}, for machines that have it")
    if table.device != device:
        return Check(name, "warning", f"{rows}: none is reachable on {device}", f"sweep on {device}, then export")
    absences = _absences(table)
    reached = f"{len(table.rows) - len(absences)} reachable" if absences else "all reachable"
    found = [f"{rows}, {reached}", *_each(reason.partition("; ")[0] for reason in absences)]
    cures = _each(reason.partition("; ")[2] or "use them on the device" for reason in absences)
    others = sum(row.other_compiler is not None for row in table.rows)
    if stale:
        found.append(f"{stale} older than the kernels")
    if others:
        found.append(f"{others} made with another Triton than {triton.__version__}")
    if stale or others or not table.rows:
        cures.append("sweep again, then export" if table.rows else "sweep, then export into it")
    return Check(name, "warning" if cures else "ok", "; ".join(found), "; ".join(cures))


def _absences(table: TunedTable) -> list[str]:
    """What each row lacks that a default serves instead of here, on the GPU or, without one, on the simulator."""
    offline = local_device() is None
    reasons = [config_absence(row.family, row.config, table.device, offline=offline) for row in table.rows]
    return [reason for reason in reasons if reason is not None]


def _each(texts: Iterable[str]) -> list[str]:
    """The texts without repetitions, in order."""
    return list(dict.fromkeys(texts))
