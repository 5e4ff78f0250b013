"""Blocks of bf16 that meet every decision of the quantiser: each scale, each rounding, each special value.

Values are bit patterns (uint16). A magnitude is the low 15 bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kernels.problem import BLOCK

Array = npt.NDArray[Any]
INF: Final = 0x7F80
OCTAVE: Final = 0x80  # patterns from one power of two to the next
DEPTH: Final = 7 * OCTAVE  # below the largest of a block: from four octaves on everything rounds to zero
# Others of a block around each pattern: zeros, subnormals, the ends of the first scales, values around 1 that do and
# do not round up, the ends of the last scales, an Inf.
NEIGHBOURS: Final = (
    0x0000, 0x8000, 0x0001, 0x0060, 0x007F, 0x0080, 0x00DF, 0x00E0, 0x015F, 0x0160, 0x3F80, 0xBFDF, 0x3FE0, 0x7E80,
    0x7EDF, 0x7F5F, 0x7F60, 0xFF7F, 0x7F80,
)  # fmt: skip


def every_amax() -> Array:
    """[65536, 32]: each pattern, NaNs too, as the only value of its block, at each place in turn."""
    blocks = np.zeros((1 << 16, BLOCK), np.uint16)
    patterns = np.arange(1 << 16)
    blocks[patterns, patterns % BLOCK] = patterns
    return blocks


def every_scale_and_value() -> Array:
    """[blocks, 32]: for each scale its smallest and largest amax with every value that may round to a code, +-.

    Source: EVEN's scale byte b belongs to amax from 1.75 * 2**(b - 126) up to, but not, 1.75 * 2**(b - 125); byte 0 to
    all below, byte 254 to all from 1.75 * 2**127 on.
    """
    blocks = []
    for byte in (*range(253), 254):
        smallest = (byte + 1) * OCTAVE + 0x60 if byte else 0
        largest = (byte + 2) * OCTAVE + 0x5F
        if byte == 254:
            smallest, largest = 254 * OCTAVE + 0x60, INF
        for peak in (smallest, largest):
            magnitudes = np.arange(peak, max(peak - DEPTH, 0) - 1, -1)
            values = np.concatenate([magnitudes, magnitudes | 0x8000]).astype(np.uint16)
            rows = np.resize(values, (-(-len(values) // (BLOCK - 1)), BLOCK - 1))
            blocks.append(np.concatenate([np.full((len(rows), 1), peak, np.uint16), rows], axis=1))
    joined = np.concatenate(blocks)
    turns = (np.arange(len(joined))[:, None] + np.arange(BLOCK)) % BLOCK
    return np.asarray(np.take_along_axis(joined, turns, axis=1))  # so that the amax is at each place


def every_pattern_among(neighbours: int) -> Array:
    """[2115, 32]: all 65,536 patterns, 31 a block, with one value ``neighbours``."""
    patterns = np.resize(np.arange(1 << 16).astype(np.uint16), (-(-(1 << 16) // (BLOCK - 1)), BLOCK - 1))
    return np.concatenate([patterns, np.full((len(patterns), 1), neighbours, np.uint16)], axis=1)


def block_sets() -> Mapping[str, Array]:
    """All of these by name."""
    among = {f"patterns among {value:04x}": every_pattern_among(value) for value in NEIGHBOURS}
    return {"amax": every_amax(), "scales": every_scale_and_value(), **among}


def as_matrix(blocks: Array, K: int) -> Array:
    """[M, K] that holds ``blocks`` [n, 32] one after the other, the first ones again at the end of the last row."""
    M = -(-blocks.size // K)
    return np.asarray(np.resize(blocks, (M, K)))


def random_values(M: int, K: int, seed: int) -> Array:
    """[M, K] of random patterns of all exponents with, in one block of eight, a NaN or Inf."""
    random = np.random.default_rng(seed)
    blocks = random.integers(0, 1 << 16, (M * K // BLOCK, BLOCK), np.uint16)
    centre = random.integers(0, 250, (len(blocks), 1))
    exponents = np.clip(centre + random.integers(-6, 1, blocks.shape), 0, 254)
    blocks = (blocks & 0x807F | exponents << 7).astype(np.uint16)
    special = random.random(len(blocks)) < 1 / 8
    places = random.integers(0, BLOCK, len(blocks))
    values = random.choice(np.array([INF, 0xFF80, 0x7FC0, 0x7F81, 0xFFFF, 0, 0x8000], np.uint16), len(blocks))
    blocks[special, places[special]] = values[special]
    matrix: Array = blocks.reshape(M, K)
    return matrix
