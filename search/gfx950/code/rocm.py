"""Code that Triton does not make: HIP builds, and AITER's code objects as a disassembler reads them."""

from __future__ import annotations

import functools
from pathlib import Path

from kernels.errors import InputError, UnavailableError
from kernels.launches.native import HipKernel, PrebuiltKernel
from kernels.rocm.cache import HipCache
from kernels.rocm.compiler import HipBuild, build_key, find_compiler
from kernels.rocm.toolchain import ToolNotFoundError
from search.gfx950.code.assembly import METADATA, METADATA_KEYS, Analysis, Resources
from search.gfx950.code.instruction_mix import mix_of
from search.gfx950.code.triton import ARCH, WAVE_SIZE, CompiledKernel
from search.gfx950.llvm import read_notes
from search.gfx950.simulator import DecodedKernel, load_code_object

HIP_FOLDER = "hip"  # of the folder of compiled kernels
KEPT = 8  # loaded code objects, some 20 MB each


def build_hip(kernel: HipKernel, cache: Path) -> tuple[CompiledKernel, bool]:
    """The assembly of ``kernel``, and whether it came from disk.

    Raises:
        CompileError: The compiler rejects it, now or when it was first asked.
        TimedOutError: It did not end in time.
        KernelError: The compiler was killed, or lacked memory or space.
        UnavailableError: There is no compiler.
        InputError: The folder cannot be written, or the compiler is gone: no fault of this candidate.
    """
    builds = HipCache(cache / HIP_FOLDER)
    try:
        compiler = find_compiler()
    except InputError as error:
        raise UnavailableError(str(error)) from error
    known = builds.load(build_key(kernel, ARCH, compiler))
    built = known if isinstance(known, HipBuild) else builds.build(kernel, ARCH, compiler)
    waves = kernel.threads // WAVE_SIZE
    code = CompiledKernel(kernel.name, ARCH, built.compiler, waves, 0, built.compile_s, built.assembly)
    return code, known is not None


def read_code_object(kernel: PrebuiltKernel) -> tuple[CompiledKernel, Analysis]:
    """What the file of ``kernel`` holds; there is no assembly text.

    Raises:
        UnavailableError: There is no disassembler.
        SimulationError: The file cannot be read, or an instruction is not modelled.
    """
    waves = kernel.threads // WAVE_SIZE
    return CompiledKernel(kernel.name, ARCH, "", waves, 0, 0.0, ""), _analysis(kernel.path, kernel.name)


def loaded_code_object(kernel: PrebuiltKernel) -> DecodedKernel:
    """``kernel``, decoded for the simulator; raises as :func:`read_code_object`."""
    return _loaded(kernel.path, kernel.name)


@functools.lru_cache(maxsize=KEPT)
def _loaded(path: Path, symbol: str) -> DecodedKernel:
    try:
        return load_code_object(path, symbol)
    except ToolNotFoundError as error:
        raise UnavailableError(str(error)) from error


@functools.lru_cache(maxsize=KEPT)
def _analysis(path: Path, symbol: str) -> Analysis:
    """Resources and instruction counts, as :func:`search.gfx950.code.assembly.analyze` gives them of assembly."""
    kernel = _loaded(path, symbol)
    statements = [instruction.statement for instruction in kernel.program.instructions]
    mix = mix_of([(one.mnemonic, one.text.partition(" ")[2].strip()) for one in statements])
    found = dict(METADATA.findall(read_notes(path)))
    known = {name: int(found.get(key, 0)) for name, key in METADATA_KEYS.items()}  # such objects name no AGPRs, spills
    return Analysis(Resources(**known), mix)
