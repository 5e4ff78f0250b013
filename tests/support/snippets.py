"""Runs a few instructions on registers that a test sets, and whole hand-written kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from search.gfx950.simulator.checks import run_checked
from search.gfx950.simulator.decode.text import Listing, parse_statement
from search.gfx950.simulator.kernel import DecodedKernel, load_assembly
from search.gfx950.simulator.program import decode_program
from search.gfx950.simulator.state.findings import Finding
from search.gfx950.simulator.state.handover import Handover
from search.gfx950.simulator.state.lds import LocalMemory
from search.gfx950.simulator.state.memory import GlobalMemory, SimulatedBuffer
from search.gfx950.simulator.state.registers import SCC, parse_operand
from search.gfx950.simulator.state.state import LANES, Environment, WaveGroup, initial_group

LANE = np.arange(LANES)


@dataclass(frozen=True)
class Snippet:
    """State after a snippet; ``group`` holds all waves."""

    group: WaveGroup
    addresses: Mapping[str, int]

    def u(self, name: str, wave: int = 0) -> Any:
        """Register as uint32 [64] (vector) or a number (scalar)."""
        row = self.group.u[_index(name)][wave]
        return row if len(row) == LANES else int(row[0])

    def f(self, name: str, wave: int = 0) -> Any:
        """Vector register as float32 [64]."""
        return self.u(name, wave).view(np.float32)

    def pair(self, name: str, wave: int = 0) -> Any:
        """Two registers as uint64 [64] or a number."""
        value = self.group.read64(_index(name))[wave]
        return value if len(value) == LANES else int(value[0])

    @property
    def scc(self) -> bool:
        """SCC of wave 0."""
        return bool(self.group.scc[0, 0])

    @property
    def findings(self) -> list[Finding]:
        """What was reported."""
        return list(self.group.env.findings.values())

    def kinds(self) -> set[str]:
        """Kinds of the findings."""
        return {finding.kind.value for finding in self.findings}


def _index(name: str) -> int:
    index = parse_operand(name).index
    assert index is not None
    return index


def run(
    text: str,
    registers: Mapping[str, Any] | None = None,
    *,
    waves: int = 1,
    exec_mask: int | None = None,
    lds_bytes: int = 4096,
    buffers: Mapping[str, Any] | None = None,
    undefined: str = "",
    scratch_dwords: int = 0,
) -> Snippet:
    """Execute the lines of ``text`` in order.

    Args:
        text: Straight-line instructions.
        registers: Value by register name: a number, 64 numbers, or [waves, 64]; floats go in as float32. A buffer's
            name as value stands for its address in the pair.
        undefined: Registers (blank-separated) that count as never written.
    """
    lines = [line.strip() for line in text.strip().splitlines()]
    listing = Listing([parse_statement(line, number) for number, line in enumerate(lines, 1)], {})
    program = decode_program(listing)
    shape = (scratch_dwords, waves, LANES)
    memory = GlobalMemory([(name, _buffer(value)) for name, value in (buffers or {}).items()])
    env = Environment(
        memory=memory,
        lds=LocalMemory(1, lds_bytes, np.zeros(waves, np.int64), np.arange(waves)),
        workgroups=((0, 0, 0),), wave_workgroup=np.zeros(waves, np.int64), wave_in_group=np.arange(waves),
        num_vgprs=256, num_agprs=256, constants=program.constants,
        scratch=np.zeros(shape, np.uint32), scratch_undefined=np.full(shape, 0xFFFFFFFF, np.uint32),
        handover=Handover(np.zeros(waves, np.int64), np.arange(waves)),
    )  # fmt: skip
    group = initial_group(env, np.arange(waves))
    for name, value in (registers or {}).items():
        _set(group, name, memory.address_of[value] if isinstance(value, str) else value)
    if exec_mask is not None:
        _set(group, "exec", exec_mask)
        group.refresh_exec()
    group.tracking.mark_undefined(SCC if name == "scc" else _index(name) for name in undefined.split())
    with np.errstate(all="ignore"):
        for instruction in program.instructions:
            group.now = instruction.statement
            if instruction.touches.isdisjoint(group.tracking.suspect):
                instruction.run(group)
            else:
                run_checked(group, instruction)
    return Snippet(group, memory.address_of)


def _buffer(value: Any) -> SimulatedBuffer:
    return value if isinstance(value, SimulatedBuffer) else SimulatedBuffer(value)


def _set(group: WaveGroup, name: str, value: Any) -> None:
    if name == "scc":
        group.scc = np.full((group.count, 1), bool(value))
        return
    operand = parse_operand(name)
    index = _index(name)
    if operand.count == 2:
        group.write64(index, np.broadcast_to(np.asarray(value, np.uint64), group.read64(index).shape))
        return
    array = np.asarray(value)
    if array.dtype.kind == "f":
        array = array.astype(np.float32).view(np.uint32)
    group.u[index][...] = (array.astype(np.int64) & 0xFFFFFFFF).astype(np.uint32)


def kernel(
    body: str, *, kernarg_bytes: int = 16, lds_bytes: int = 0, arguments: str = "pointer value"
) -> DecodedKernel:
    """A kernel with its kernarg address in s[0:1] and its workgroup id in s2."""
    entries = {"pointer": ("8", "global_buffer"), "value": ("4", "by_value")}
    lines, offset = [], 0
    for word in arguments.split():
        size, kind = entries[word]
        lines.append(f"      - .offset: {offset}\n        .size: {size}\n        .value_kind: {kind}")
        offset += int(size)
    metadata = "\n".join(lines)
    return load_assembly(
        f"""
k:
{body}
.section .rodata
.amdhsa_kernel k
  .amdhsa_group_segment_fixed_size {lds_bytes}
  .amdhsa_kernarg_size {kernarg_bytes}
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_system_sgpr_workgroup_id_x 1
  .amdhsa_system_sgpr_workgroup_id_y 0
  .amdhsa_system_sgpr_workgroup_id_z 0
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.kernels:
  - .args:
{metadata}
    .name: k
...
.end_amdgpu_metadata
"""
    )
