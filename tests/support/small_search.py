"""A search small enough for a test: two families of a few points, a study on disk, and its records."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
import pandas as pd

from kernels.device import GFX950
from kernels.families.fused import SplitKAtomicConfig, TileConfig
from kernels.problem import GemmShape
from search.evaluation import Candidate, Evaluation
from search.results.record import make_record
from search.study.points import Points

SHAPE = GemmShape(16, 2112, 7168)
CHOICES: dict[str, tuple[int | str, ...]] = {
    "BLOCK_M": (4, 8, 16, 32),
    "BLOCK_N": (32, 64, 128),
    "BLOCK_K": (128, 256, 512),
    "num_warps": (2, 4, 8),
    "cache_modifier": ("", ".cg"),
}


class TinySet:
    """Legal points given as a product, less those a predicate refuses."""

    def __init__(self, kind: type[TileConfig], choices: dict[str, tuple[int | str, ...]]) -> None:
        rows = [dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())]
        self.configs = [kind(**row) for row in rows if row["BLOCK_M"] != row["BLOCK_N"]]  # type: ignore[arg-type]
        self.frame = pd.DataFrame([config.to_dict() for config in self.configs])

    def __len__(self) -> int:
        return len(self.configs)

    def config(self, index: int) -> TileConfig:
        return self.configs[index]

    def index_of(self, config: TileConfig) -> int | None:
        return self.configs.index(config) if config in self.configs else None


def points(seed: int = 0) -> Points:
    split = {**CHOICES, "split_k": (1, 2, 4)}
    sets = {"fused": TinySet(TileConfig, CHOICES), "fused_splitk_atomic": TinySet(SplitKAtomicConfig, split)}
    return Points(sets, seed)


def record(candidate: Candidate, evaluation: Evaluation, started: str, seconds: float) -> Mapping[str, Any]:
    return make_record(
        study="test", device=GFX950, candidate=candidate, evaluation=evaluation,
        started=started, duration_s=seconds, versions={"triton": "3.9.0", "torch": "2.13.0"},
    )  # fmt: skip


def open_study(folder: Path) -> optuna.Study:
    url = f"sqlite:///{folder}/studies.db"
    return optuna.create_study(study_name="test", storage=url, load_if_exists=True)
