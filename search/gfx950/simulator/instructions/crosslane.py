"""Moves between lanes: lane reads and writes, permute swaps.

MI300 ISA guide, V_READFIRSTLANE_B32, V_READLANE_B32, V_WRITELANE_B32; LLVM ``AMDGPUUsage`` for the swaps of gfx950.
"""

from __future__ import annotations

import numpy as np

from search.gfx950.simulator.decode.op import Op, table
from search.gfx950.simulator.state.state import LANES, WaveGroup


def v_readfirstlane_b32(g: WaveGroup, d: int, a: int) -> None:
    """D.sgpr = S0 of the lowest active lane (lane 0 if none is active)."""
    row = g.u[a]
    if row.shape[1] == 1:
        g.u[d][...] = row
    elif g.full:
        g.u[d][...] = row[:, :1]
    else:
        g.u[d][...] = np.take_along_axis(row, g.mask.argmax(axis=1)[:, None], axis=1)


def v_readlane_b32(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D.sgpr = S0 of lane S1[5:0], whatever EXEC is."""
    lane = np.broadcast_to(g.u[b] & np.uint32(63), (g.count, 1)).astype(np.int64)
    g.u[d][...] = np.take_along_axis(g.u[a], lane, axis=1)


def v_writelane_b32(g: WaveGroup, d: int, a: int, b: int) -> None:
    """Lane S1[5:0] of D = S0, whatever EXEC is."""
    lane = np.broadcast_to(g.u[b] & np.uint32(63), (g.count, 1))
    np.copyto(g.u[d], g.u[a], where=np.arange(LANES, dtype=np.uint32) == lane)


def _swap(g: WaveGroup, d: int, s: int, first: int, second: int, rows: int) -> None:
    shape = (g.count, LANES // rows, rows)
    x, y = g.u[first].reshape(shape).copy(), g.u[second].reshape(shape).copy()
    moved = x[:, 1::2].copy()
    x[:, 1::2] = y[:, 0::2]
    y[:, 0::2] = moved
    g.u[d][...] = x.reshape(g.count, LANES)
    g.u[s][...] = y.reshape(g.count, LANES)


def v_permlane16_swap_b32(g: WaveGroup, d: int, s: int, first: int, second: int) -> None:
    """Rows 1 and 3 (16 lanes each) of the first register change places with rows 0 and 2 of the second."""
    _swap(g, d, s, first, second, 16)


def v_permlane32_swap_b32(g: WaveGroup, d: int, s: int, first: int, second: int) -> None:
    """Lanes 32-63 of the first register change places with lanes 0-31 of the second."""
    _swap(g, d, s, first, second, 32)


def v_swap_b32(g: WaveGroup, d: int, s: int, first: int, second: int) -> None:
    """The two registers change places."""
    x, y = g.u[first].copy(), g.u[second].copy()
    g.u[d][...] = y
    g.u[s][...] = x


_BOTH = ("dst", "dst1")
OPS = table(
    [
        Op("v_readfirstlane_b32", v_readfirstlane_b32, ("u32",), ("u32",)),
        Op("v_readlane_b32", v_readlane_b32, ("u32",), ("u32", "u32")),
        Op("v_writelane_b32", v_writelane_b32, ("u32",), ("u32", "u32"), ignores_exec=True, preserve=0xFFFFFFFF),
        Op("v_permlane16_swap_b32", v_permlane16_swap_b32, ("u32", "u32"), (), _BOTH),
        Op("v_permlane32_swap_b32", v_permlane32_swap_b32, ("u32", "u32"), (), _BOTH),
        Op("v_swap_b32", v_swap_b32, ("u32", "u32"), (), _BOTH),
    ]
)
