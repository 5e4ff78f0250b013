"""Estimates of whole columns, bit for bit: they change with FORMULA_VERSION, and with nothing else.

``recorded_estimates.json`` holds what a model gave; a new version of the model is recorded by running this file.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kernels.families import FAMILIES
from kernels.problem import GemmShape
from search.gfx950.machine import MI355X
from search.gfx950.model.families import estimate_us
from search.gfx950.model.formula import FORMULA_VERSION
from search.study.priors import doubtful

RECORDED = Path(__file__).with_name("recorded_estimates.json")
SHAPES = (GemmShape(1, 2112, 7168), GemmShape(64, 7168, 2304), GemmShape(4096, 3072, 1536))
POINTS = 8192  # of each family and shape: 147,456 in all
PRIME = 1_000_003  # coprime to every product of the choices: the points are spread over the whole of it
CHOICES: dict[str, tuple[Any, ...]] = {
    "BLOCK_M": (4, 16, 32, 64, 128, 256), "BLOCK_N": (16, 32, 64, 128, 256), "BLOCK_K": (128, 256, 512, 1024),
    "split_k": (1, 2, 3, 7, 16), "num_warps": (2, 4, 8), "num_stages": (1, 2, 3, 4), "waves_per_eu": (0, 1, 4),
    "matrix_instr_nonkdim": (16, 32), "quantizer": ("hardware", "software"), "quantize_kernel": ("triton", "hip"),
    "log2_k_split": (0, 1, 2, 3), "waves_m": (1, 2, 4), "waves_n": (1, 2, 4), "REDUCE_BLOCK_M": (1, 16),
    "REDUCE_BLOCK_N": (64, 256), "QUANT_BLOCK_M": (1, 32), "QUANT_BLOCK_K": (256, 1024),
    "QUANT_THREADS": (64, 256, 1024), "QUANT_GROUPS": (1, 2, 4), "QUANT_VECTOR": (8, 16, 32),
}  # fmt: skip
MODELLED = sorted(FAMILIES.keys() - {"aiter"})


def points(family: str) -> pd.DataFrame:
    """Configurations, legal or not: digits of numbers in the mixed base of the choices."""
    index = np.arange(POINTS, dtype=np.int64) * PRIME
    columns: dict[str, Any] = {}
    for name, default in FAMILIES[family].config_type().to_dict().items():
        choices = np.asarray(CHOICES.get(name, (default,)))
        columns[name] = choices[index % len(choices)]
        index //= len(choices)
    return pd.DataFrame(columns)


def digests(family: str) -> dict[str, str]:
    """Of the times at each shape, and of which points will probably spill."""
    frame = points(family)
    times = {str(shape): estimate_us(family, frame, shape, MI355X).astype("<f8").tobytes() for shape in SHAPES}
    values = {**times, "doubtful": np.packbits(doubtful(family, frame, MI355X)).tobytes()}
    return {name: hashlib.sha256(content).hexdigest()[:16] for name, content in values.items()}


@pytest.mark.parametrize("family", MODELLED)
def test_estimates_are_those_that_this_version_of_the_model_gave(family: str) -> None:
    recorded = json.loads(RECORDED.read_text())
    assert recorded["model"] == FORMULA_VERSION, f"a new model: record it with python {Path(__file__).name}"
    assert digests(family) == recorded[family]


def test_the_points_differ_and_some_are_doubtful() -> None:
    frame = points("fused")
    assert len(frame.drop_duplicates()) == POINTS
    assert 0 < doubtful("fused", frame, MI355X).sum() < POINTS


if __name__ == "__main__":
    record = {"model": FORMULA_VERSION, **{family: digests(family) for family in MODELLED}}
    RECORDED.write_text(json.dumps(record, indent=1) + "\n")
