"""Constants of the issue-order simulation, each with its unit and where it comes from.

Marks of the sources: *doc* a vendor's document or compiler source; *meas* measured on a device in public work; *fit*
fitted to public timings by ``benchmarks/fit_timing.py``, which says to which rows; *set* chosen by this project within
the range in which the fit does not change. A calibration on the machine itself replaces some of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any


def constant(value: float, unit: str, origin: str, source: str) -> Any:
    """A field with a default, its unit and where that comes from."""
    return field(default=value, metadata={"unit": unit, "origin": origin, "source": source})


PATH_BYTES_PER_CLK = 64.0  # B/clk of a compute unit's vector memory path: dwordx4 takes a wave 16 clk (meas)
LDS_BYTES_PER_CLK = 256.0  # B/clk of a compute unit: ds_read_b128 takes a SIMD 16 clk, four SIMDs at once (meas)
_GPUMODE = "logged configurations of AITER's fused Triton kernel on an MI355X, GPU MODE's harness"
_AITER = "AITER's tuned a4w4 code objects on an MI355X"


@dataclass(frozen=True)
class Constants:
    """What instructions, units and memory take. Clocks are those of the shader engine."""

    issue_clks: int = constant(4, "clk", "doc", "CDNA 3 ISA guide: a SIMD issues for one wave every fourth clock")
    valu_latency_clks: int = constant(4, "clk", "doc", "CDNA 3 ISA guide: results forward to the next instruction")
    mfma_blocks_valu_clks: int = constant(8, "clk", "meas", "see search.gfx950.machine")
    mfma_result_clks: int = constant(8, "clk", "doc", "CDNA 3 ISA guide: wait states before a VALU reads a result")
    scalar_latency_clks: int = constant(8, "clk", "set", _GPUMODE)
    branch_clks: int = constant(16, "clk", "set", _GPUMODE)
    lds_latency_clks: float = constant(64, "clk", "meas", "public micro-benchmarks of CDNA 3")
    scalar_load_clks: float = constant(130, "clk", "set", "scalar cache hit; within 100 to 300 nothing changes")
    barrier_clks: float = constant(12, "clk", "set", _GPUMODE)
    cold_latency_clks: float = constant(350, "clk", "fit", _GPUMODE)
    warm_latency_clks: float = constant(300, "clk", "fit", _AITER)
    handed_latency_clks: float = constant(800, "clk", "fit", _GPUMODE)
    store_latency_clks: float = constant(700, "clk", "fit", _GPUMODE)
    scratch_latency_clks: float = constant(400, "clk", "set", "a spilled register is read back from L1 or L2")
    in_flight_bytes: float = constant(44 * 1024, "B", "meas", "bytes that a compute unit waits for at once")
    unit_bytes_per_clk: float = constant(26.5, "B/clk", "fit", _AITER)
    l2_bytes_per_clk: float = constant(2048, "B/clk", "doc", "L2 of an XCD, CDNA 3 white paper")
    cache_tbs: float = constant(8.5, "TB/s", "doc", "Infinity Cache")
    fill_gain: float = constant(
        0.94, "ratio", "fit", "L2 copies of lines are filled as fast as this part of it; " + _AITER
    )
    exposed_share: float = constant(0.39, "share", "fit", "of the time to read memory once, never hidden; " + _AITER)
    write_tbs: float = constant(5.3, "TB/s", "fit", _AITER)
    dispatch_clks: float = constant(1.5, "clk", "fit", "workgroups of an XCD start one after the other; " + _GPUMODE)
    crowding: float = constant(1.0, "share", "fit", "a further workgroup on the busiest unit; " + _GPUMODE)
    overlap: float = constant(3.7, "power", "fit", "operands arrive unevenly, so units wait for them; " + _AITER)
    mfma_throttle: float = constant(0.48, "share", "fit", "MFMA of a full device slow down by this; " + _AITER)


CONSTANTS = Constants()


def sources(constants: Constants = CONSTANTS) -> list[tuple[str, float, str, str, str]]:
    """(name, value, unit, origin, source) of every constant."""
    return [
        (one.name, getattr(constants, one.name), *(one.metadata[key] for key in ("unit", "origin", "source")))
        for one in fields(Constants)
    ]
