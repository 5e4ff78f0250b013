"""Records of trials that tests judged by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernels.device import GFX950
from kernels.families.fused import TileConfig
from kernels.problem import GemmShape
from search.evaluation import Candidate, Evaluation
from search.results.record import make_record

SHAPE = GemmShape(16, 2112, 7168)
VERSIONS = {"triton": "3.9.0", "torch": "2.13.0", "rocm_or_cuda": "none"}


def record(evaluation: Evaluation, config: TileConfig | None = None, versions: Mapping[str, str] = VERSIONS) -> Any:
    """Record of ``fused`` at 16x2112x7168 on gfx950."""
    return make_record(
        study="study", device=GFX950, candidate=Candidate(SHAPE, "fused", config or TileConfig()),
        evaluation=evaluation, started="2026-11-30T10:00:00+00:00", duration_s=0.5, versions=versions,
    )  # fmt: skip


def predicted(objective_us: float, **facts: Any) -> Evaluation:
    """An ok verdict with a predicted time."""
    return Evaluation("ok", evidence="predicted", objective_us=objective_us, facts=facts)
