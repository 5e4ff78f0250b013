"""A kernel to simulate: its program and how a launch sets it up.

Source of the descriptor's layout and of the initial registers: LLVM ``AMDGPUUsage``, "Kernel descriptor" and "Initial
kernel execution state" (gfx90a to gfx950).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from kernels.yaml_node import LOADER
from search.gfx950 import llvm
from search.gfx950.simulator.decode.elf import read_elf
from search.gfx950.simulator.decode.text import parse_objdump, parse_triton
from search.gfx950.simulator.program import DecodedProgram, decode_program
from search.gfx950.simulator.state.findings import SimulationError

_DIRECTIVE = re.compile(r"^\s*\.amdhsa_(\w+)\s+(\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Argument:
    """One kernel argument: where it lies in the kernarg segment.

    Args:
        offset, size: Bytes.
        kind: ``global_buffer``, ``by_value`` or ``hidden_…``.
        name: Empty where the metadata has none.
    """

    offset: int
    size: int
    kind: str
    name: str = ""


@dataclass(frozen=True)
class Descriptor:
    """Register set-up and sizes of a kernel.

    Args:
        user_sgprs: Enabled user SGPR groups in hardware order: (name, number of SGPRs).
        preload_sgprs: Kernel argument dwords that the loader puts behind them.
        preload_offset: First dword of the kernarg segment that is preloaded.
        workgroup_ids: Which of x, y, z follow.
        lds_bytes, scratch_bytes: Static LDS of a workgroup, private memory of a lane.
        kernarg_bytes: Size of the kernarg segment.
    """

    user_sgprs: tuple[tuple[str, int], ...]
    preload_sgprs: int
    preload_offset: int
    workgroup_ids: tuple[bool, bool, bool]
    lds_bytes: int
    scratch_bytes: int
    kernarg_bytes: int


@dataclass(frozen=True, eq=False)
class DecodedKernel:
    """A kernel that can be launched any number of times.

    Args:
        arguments: From the metadata, in order of offset.
    """

    name: str
    program: DecodedProgram
    descriptor: Descriptor
    arguments: Sequence[Argument]


_USER_SGPRS = (
    ("private_segment_buffer", 4), ("dispatch_ptr", 2), ("queue_ptr", 2), ("kernarg_segment_ptr", 2),
    ("dispatch_id", 2), ("flat_scratch_init", 2), ("private_segment_size", 1),
)  # fmt: skip


def load_assembly(text: str, symbol: str | None = None) -> DecodedKernel:
    """Kernel from compiler output (Triton's ``asm["amdgcn"]``); the first one unless ``symbol`` is given.

    Raises:
        SimulationError: No kernel descriptor, or an instruction that is not modelled.
    """
    name = symbol or _first_kernel(text)
    start = text.find(f".amdhsa_kernel {name}")
    if start < 0:
        raise SimulationError(f"no .amdhsa_kernel {name} in the assembly text")
    block = text[start : text.index(".end_amdhsa_kernel", start)]
    directives = {key: int(value, 0) for key, value in _DIRECTIVE.findall(block) if _is_int(value)}
    descriptor = Descriptor(
        user_sgprs=tuple((key, size) for key, size in _USER_SGPRS if directives.get(f"user_sgpr_{key}", 0)),
        preload_sgprs=directives.get("user_sgpr_kernarg_preload_length", 0),
        preload_offset=directives.get("user_sgpr_kernarg_preload_offset", 0),
        workgroup_ids=_three(directives.get(f"system_sgpr_workgroup_id_{axis}", 1) for axis in "xyz"),
        lds_bytes=directives.get("group_segment_fixed_size", 0),
        scratch_bytes=directives.get("private_segment_fixed_size", 0),
        kernarg_bytes=directives.get("kernarg_size", 0),
    )
    metadata = text[text.find(".amdgpu_metadata") :]
    return DecodedKernel(name, decode_program(parse_triton(text, name)), descriptor, parse_arguments(metadata, name))


def load_code_object(path: Path, symbol: str | None = None) -> DecodedKernel:
    """Kernel from an ELF code object; the only one unless ``symbol`` (without ``.kd``) names it.

    Raises:
        ToolNotFoundError: No LLVM disassembler.
        SimulationError: No such kernel, or an instruction that is not modelled.
    """
    elf = read_elf(path)
    kernels = [name.removesuffix(".kd") for name in elf.symbols if name.endswith(".kd")]
    name = symbol or (kernels[0] if len(kernels) == 1 else None)
    if name is None or name not in kernels:
        raise SimulationError(f"{path} has no kernel {symbol}: it has {', '.join(kernels) or 'none'}")
    raw = elf.read(elf.symbols[f"{name}.kd"].address, 64)
    (entry_offset,) = struct.unpack_from("<q", raw, 16)
    entry = elf.symbols[f"{name}.kd"].address + entry_offset
    size = elf.symbols[name].size if name in elf.symbols else 0
    try:
        text, notes = llvm.disassemble(path), llvm.read_notes(path)
    except llvm.ToolError as error:
        raise SimulationError(str(error)) from error
    listing = parse_objdump(text, name, entry, entry + size if size else None)
    return DecodedKernel(name, decode_program(listing), parse_descriptor(raw), parse_arguments(notes, name))


def parse_descriptor(raw: bytes) -> Descriptor:
    """The 64 bytes of a kernel descriptor symbol.

    Raises:
        SimulationError: Too few bytes.
    """
    if len(raw) < 64:
        raise SimulationError(f"a kernel descriptor has 64 bytes, found {len(raw)}")
    lds, scratch, kernarg = struct.unpack_from("<III", raw, 0)
    (resource2,) = struct.unpack_from("<I", raw, 52)
    properties, preload = struct.unpack_from("<HH", raw, 56)
    return Descriptor(
        user_sgprs=tuple(entry for bit, entry in enumerate(_USER_SGPRS) if properties >> bit & 1),
        preload_sgprs=preload & 0x7F,
        preload_offset=preload >> 7,
        workgroup_ids=_three(resource2 >> bit & 1 for bit in (7, 8, 9)),
        lds_bytes=lds,
        scratch_bytes=scratch,
        kernarg_bytes=kernarg,
    )


def parse_arguments(text: str, kernel: str) -> tuple[Argument, ...]:
    """Arguments of ``kernel`` from metadata in YAML (compiler output or ``llvm-readelf --notes``).

    If no kernel has that name, as in hand-written objects, the first list counts.

    Raises:
        SimulationError: It is no YAML.
    """
    document = text.partition("---\n")[2].partition("\n...")[0]
    try:
        kernels = (yaml.load(document, Loader=LOADER) or {}).get("amdhsa.kernels", [])
    except yaml.YAMLError as error:
        raise SimulationError(f"the metadata of {kernel} cannot be read: {error}") from error
    lists = {str(one.get(".name")): one.get(".args", []) for one in kernels}
    entries = lists[kernel] if kernel in lists else next(filter(None, lists.values()), [])
    return tuple(
        Argument(one[".offset"], one[".size"], one.get(".value_kind", ""), str(one.get(".name", ""))) for one in entries
    )


def _three(values: Iterable[int]) -> tuple[bool, bool, bool]:
    x, y, z = (bool(value) for value in values)
    return x, y, z


def _is_int(text: str) -> bool:
    return re.fullmatch(r"-?(0x[0-9a-fA-F]+|\d+)", text) is not None


def _first_kernel(text: str) -> str:
    match = re.search(r"^\s*\.amdhsa_kernel\s+(\S+)", text, re.MULTILINE)
    if match is None:
        raise SimulationError("no .amdhsa_kernel directive in the assembly text")
    return match[1]
