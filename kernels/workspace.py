"""Where the workspaces of a program lie: one allocation a call, bounded, taken in the order of the stream.

A workspace belongs to one call. It comes from torch's caching allocator, which hands the block of one call to the
next call of the same device and stream, never to another stream, and which serves a graph under capture from that
graph's own memory. A buffer kept here instead would be shared by threads that interleave their kernels on one
stream, and would dangle in a captured graph once it grows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kernels.program import Buffer, Program

LIMIT_BYTES = 512 << 20  # of one call: a product that needs more is computed in parts, some rows of C at a time
ALIGNMENT_BYTES = 256  # of each workspace: whole cache lines (128 bytes on gfx950), and more than any vector access
ROW_STEP = 256  # rows of a part are a multiple: the row padding of the scales, so that no tile spans two parts


@dataclass(frozen=True)
class WorkspaceLayout:
    """Places of the workspaces in one allocation.

    Args:
        offsets: First byte of each, by name.
        bytes: Of the allocation.
    """

    offsets: Mapping[str, int]
    bytes: int


def layout(buffers: tuple[Buffer, ...]) -> WorkspaceLayout:
    """Place ``buffers`` one behind the other, aligned."""
    offsets: dict[str, int] = {}
    end = 0
    for buffer in buffers:
        offsets[buffer.name] = end
        end += -(-buffer.bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    return WorkspaceLayout(offsets, end)


def rows_of_a_part(M: int, program: Callable[[int], Program], limit_bytes: int = LIMIT_BYTES) -> int:
    """Return the rows to compute at a time so that the workspaces stay within the limit; ``M`` if all fit.

    A row of a table serves every larger M, and split-K slices grow with M: unbounded, a row tuned for M = 256 with
    16 splits would ask for 15 GB at M = 32768, N = 7168.

    Args:
        M: Rows of C.
        program: Program for a number of rows.
        limit_bytes: What the workspaces of a part may take; a part has at least ``ROW_STEP`` rows whatever they need.
    """
    rows = M
    while rows > ROW_STEP and layout(program(rows).workspaces).bytes > limit_bytes:
        rows = -(-rows // 2 // ROW_STEP) * ROW_STEP
    return rows
