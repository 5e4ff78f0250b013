"""What the simulator executed, as the instruction mix that the timing model takes."""

from __future__ import annotations

from collections.abc import Mapping

from search.gfx950.instruction_mix import InstructionMix, mix_of_counts
from search.gfx950.simulator import Histogram


def longest_wave_mix(histogram: Histogram) -> InstructionMix:
    """Mix of the wave that executed most.

    A round of workgroups ends with its longest one, and with split K the slices may have unequal shares. The mix is
    that of the average wave, scaled to the length of the longest.
    """
    counts: dict[tuple[str, str], float] = {}
    for text, count in histogram.by_text.items():
        mnemonic, _, operands = text.partition(" ")
        counts[mnemonic, operands.strip()] = count
    return mix_of_counts(counts).scaled(histogram.longest_wave / max(histogram.total, 1))


def executed_columns(histogram: Histogram) -> Mapping[str, float]:
    """Results columns ``executed_<class>``: instructions of the average wave."""
    return {f"executed_{kind.value}": count for kind, count in histogram.per_wave().items()}
