"""How well the timing model agrees with AITER's own measurements of its gfx950 a4w4 GEMM kernels.

    python benchmarks/model_against_aiter.py TUNED_CSV [--triton-winners CSV]

TUNED_CSV is AITER's `a4w4_blockscale_tuned_gemm.csv`, or has the columns cu_num, M, N, K, kernel_family, tile_m,
tile_n, splitK, us, a row for each tuned shape.
The rows are the winners of AITER's tuner: nothing is known about the tiles that lost, so the ranks below say how high
the model places the winner among the tiles, not by how much the other tiles are slower.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kernels.errors import InputError
from kernels.families.stages import Gemm, Sum
from kernels.problem import GemmShape
from search.formats import aiter_csv
from search.gfx950.machine import AITER, Machine
from search.gfx950.model.formula import FORMULA_VERSION, total_us
from search.gfx950.model.work import estimate_code_object_work, gemm_work, sum_work
from search.terminal import one_line_errors

NO_COLUMN_GUARD = {(256, 256), (192, 256), (224, 256), (128, 512)}  # tiles whose kernels need N % tile_n == 0
RANGES = ((0, 64), (64, 1024), (1024, 10**9))  # of M


@dataclass(frozen=True)
class Agreement:
    """Model against measurement over some rows: count, relative errors, rank correlation."""

    rows: int
    median_error: float
    p90_error: float
    median_ratio: float
    spearman: float

    def __str__(self) -> str:
        return (
            f"{self.rows:5d} rows  median |error| {self.median_error:6.1%}  p90 {self.p90_error:6.1%}  "
            f"median ratio {self.median_ratio:5.3f}  Spearman {self.spearman:.4f}"
        )


def agreement(predicted_us: np.ndarray, measured_us: np.ndarray) -> Agreement:
    """Agreement of two columns of times [rows]."""
    ratio = predicted_us / measured_us
    error = np.abs(ratio - 1)
    rank = float(spearmanr(predicted_us, measured_us).statistic)
    return Agreement(len(ratio), float(np.median(error)), float(np.quantile(error, 0.9)), float(np.median(ratio)), rank)


def hand_written_rows(path: Path) -> pd.DataFrame:
    """Rows of the assembly kernels without split-K, of AITER's own file or of one with the tile in columns."""
    frame = read_csv(path, ("cu_num", "M", "N", "K", "splitK", "us"))
    if "kernel_family" not in frame:
        return _of_aiter(path)
    frame = read_csv(path, ("kernel_family", "tile_m", "tile_n"))
    return frame[(frame.kernel_family == "asm") & (frame.splitK == 0) & (frame.us > 0)].reset_index(drop=True)


def _of_aiter(path: Path) -> pd.DataFrame:
    """The same of a file whose kernels are named as AITER names them."""
    trials = [trial for trial in aiter_csv.read(path, path.read_text()).trials if trial.outcome == "ok"]
    knobs = [trial.config.to_dict() for trial in trials]
    frame = pd.DataFrame({
        "cu_num": [trial.device.cu_count for trial in trials],
        **{name: [getattr(trial.shape, name) for trial in trials] for name in ("M", "N", "K")},
        "tile_m": [one["BLOCK_M"] for one in knobs], "tile_n": [one["BLOCK_N"] for one in knobs],
        "splitK": [one["log2_k_split"] for one in knobs], "us": [trial.time_us for trial in trials],
    })  # fmt: skip
    return frame[frame.splitK == 0].reset_index(drop=True)


def read_csv(path: Path, columns: tuple[str, ...]) -> pd.DataFrame:
    """The file as a DataFrame that has ``columns``.

    Raises:
        InputError: No such file, or another one.
    """
    try:
        frame = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as CSV ({' '.join(str(error).split())})") from error
    missing = [name for name in columns if name not in frame.columns]
    if missing:
        raise InputError(f"{path}: has no column {', '.join(missing)}; name a file of AITER's tuned a4w4 GEMMs")
    return frame


def predictions(frame: pd.DataFrame, cu_count: int) -> np.ndarray:
    """Predicted time in microseconds [rows] of the tile that each row names."""
    columns = (frame[name].to_numpy(np.float64) for name in ("tile_m", "tile_n", "M", "N", "K"))
    return np.asarray(total_us([estimate_code_object_work(*columns)], Machine(cu_count=cu_count, harness=AITER)))


def winner_ranks(frame: pd.DataFrame, cu_count: int) -> np.ndarray:
    """Place [rows] that the model gives each row's tile among all tiles that may run the shape, 1 being the fastest.

    Tiles that the model cannot tell from the winner count as faster.
    """
    tiles = frame[["tile_m", "tile_n"]].drop_duplicates().to_numpy()
    machine = Machine(cu_count=cu_count, harness=AITER)
    ranks = []
    for tile_m, tile_n, M, N, K in frame[["tile_m", "tile_n", "M", "N", "K"]].to_numpy():
        legal = np.array([(m, n) for m, n in tiles if (m, n) not in NO_COLUMN_GUARD or N % n == 0], np.float64)
        times = np.asarray(total_us([estimate_code_object_work(legal[:, 0], legal[:, 1], M, N, K)], machine))
        own = times[(legal == (tile_m, tile_n)).all(axis=1)]
        ranks.append(int((times <= own[0]).sum()) if len(own) else len(legal) + 1)
    return np.array(ranks)


def triton_winner_places(path: Path) -> np.ndarray:
    """Fraction [rows] of a grid of configurations that the model calls no slower than the published Triton winner.

    The grid holds all combinations of the values that occur in the file. 0.5 would be chance.
    """
    knobs = ["BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "num_warps", "num_stages", "NUM_KSPLIT"]
    frame = read_csv(path, ("N", "K", "variant", "M_bucket", *knobs)).dropna(subset=["N", "K"])
    frame = frame[(frame.variant == "preshuffled") & frame.M_bucket.str.startswith("M_LEQ_")]
    axes = np.meshgrid(*(frame[knob].unique() for knob in knobs), indexing="ij")
    grid = [axis.ravel().astype(np.float64) for axis in axes]
    places = []
    for row in frame.to_dict("records"):
        m, n, k = int(str(row["M_bucket"]).removeprefix("M_LEQ_")), int(row["N"]), int(row["K"])
        own = np.array([[row[knob]] for knob in knobs], np.float64)
        times, (winner,) = triton_times(grid, m, n, k), triton_times(list(own), m, n, k)
        places.append(float((times <= winner).mean()))
    return np.array(places)


def triton_times(knobs: list[np.ndarray], m: int, n: int, k: int) -> np.ndarray:
    """Predicted time in microseconds [configurations] of a packed Triton GEMM with its reduction."""
    block_m, block_n, block_k, warps, stages, split_k = knobs
    tile = SimpleNamespace(
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, num_warps=warps, num_stages=stages, matrix_instr_nonkdim=16
    )
    machine, shape = Machine(harness=AITER), GemmShape(m, n, k)
    gemm = gemm_work(Gemm(tile, staged=True, split_k=split_k), shape, machine)
    one = np.asarray(total_us([gemm], machine))
    reduced = np.asarray(total_us([gemm, sum_work(Sum(16, 64, split_k), shape, machine)], machine))
    return np.where(split_k > 1, reduced, one)


def main() -> None:
    """Print the agreement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tuned", type=Path, help="AITER's tuned a4w4 shapes with times")
    parser.add_argument("--triton-winners", type=Path, help="AITER's tuned Triton configurations, without times")
    arguments = parser.parse_args()
    frame = hand_written_rows(arguments.tuned)
    cu_count = int(frame.cu_num.iloc[0])
    frame = frame[frame.cu_num == cu_count]
    predicted, measured = predictions(frame, cu_count), frame.us.to_numpy()
    print(f"model {FORMULA_VERSION}, harness {AITER.name}, {cu_count} compute units, hand-written kernels")
    print(f"  all M            {agreement(predicted, measured)}")
    for low, high in RANGES:
        rows = frame.M.between(low + 1, high).to_numpy()
        if rows.sum() > 1:
            span = f"M {low + 1:4d} to {'max' if high == 10**9 else high:>5}"
            print(f"  {span}  {agreement(predicted[rows], measured[rows])}")
    ranks = winner_ranks(frame, cu_count)
    print(f"the tuner's winner is the model's first tile in {(ranks == 1).mean():.1%}, among its first three in "
          f"{(ranks <= 3).mean():.1%} of {len(ranks)} shapes (only winners are known)")  # fmt: skip
    if arguments.triton_winners:
        places = triton_winner_places(arguments.triton_winners)
        print(f"Triton winners (no times known): the model calls a median of {np.median(places):.1%} of the grid "
              f"no slower; {(places < 0.1).mean():.0%} of {len(places)} winners are in its best tenth")  # fmt: skip


if __name__ == "__main__":
    with one_line_errors():
        main()
