"""What it costs to claim a point and to store its trial in a study that several sweeps share, by its number of trials.

Usage: python benchmarks/shared_claims.py --storage postgresql+psycopg://USER@HOST/DATABASE [--trials 2000 20000]

The database should be empty: studies are made in it, and deleted at the end.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Annotated

import optuna
import typer
from optuna.storages import RDBStorage
from sqlalchemy import text

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kernels.device import GFX950
from kernels.errors import InputError
from kernels.families.fused import TileConfig
from kernels.problem import GemmShape
from search.evaluation import Candidate, Evaluation
from search.results.claims import SharedClaims, shared_claims
from search.results.record import RECORD, Record, make_record, packed
from search.results.storage import open_storage
from search.study.sharing import SharedStudy, SharedTrials
from search.terminal import one_line_errors

SHAPE = GemmShape(16, 2112, 7168)
CLAIMS = 30
TRIALS = text("""
    INSERT INTO trials (study_id, number, state, datetime_start, datetime_complete)
    SELECT :study, number, 'PRUNED', now(), now() FROM generate_series(0, :last) AS number RETURNING trial_id
""")
RECORDS = text("INSERT INTO trial_user_attributes (trial_id, key, value_json) VALUES (:trial, :key, :value)")


def candidate(number: int) -> Candidate:
    """One of as many as are asked for."""
    return Candidate(SHAPE, "fused", TileConfig(GROUP_M=number + 1))


def record(number: int) -> Record:
    """Its trial."""
    return make_record(
        study="claims", device=GFX950, candidate=candidate(number), evaluation=Evaluation("slow", "made up"),
        started="2026-11-30T15:00:00+00:00", duration_s=1.0, versions={},
    )  # fmt: skip


def fill(storage: RDBStorage, study: int, count: int) -> None:
    """Store ``count`` trials at once."""
    with storage.engine.begin() as connection:
        added = [row[0] for row in connection.execute(TRIALS, {"study": study, "last": count - 1})]
        values = [
            {"trial": trial, "key": RECORD, "value": json.dumps(packed(record(n)))} for n, trial in enumerate(added)
        ]
        connection.execute(RECORDS, values)


def figures_ms(storage: RDBStorage, claims: SharedClaims, trials: int) -> dict[str, float]:
    """Milliseconds of the first reading, and medians of a claim and of storing a trial."""
    study = optuna.create_study(storage=storage, study_name=f"claims-{trials}")
    kept = SharedTrials(study, claims)
    fill(storage, study._study_id, trials)
    shared = SharedStudy(kept, waits=True)
    spent: dict[str, list[float]] = {"read": [], "claim": [], "keep": []}

    def timed(what: str, begin_s: float) -> None:
        spent[what].append(1e3 * (time.monotonic() - begin_s))

    begin_s = time.monotonic()
    shared.read()
    timed("read", begin_s)
    for number in range(trials, trials + CLAIMS):
        point = (candidate(number).family, candidate(number).config)
        begin_s = time.monotonic()
        shared.claim(point, 2 * trials)
        timed("claim", begin_s)
        begin_s = time.monotonic()
        shared.keep(point, record(number), 2 * trials)
        timed("keep", begin_s)
    optuna.delete_study(storage=storage, study_name=study.study_name)
    return {what: round(median(times), 1) for what, times in spent.items()}


def main(
    storage: Annotated[str, typer.Option(metavar="URL", help="A PostgreSQL database.")],
    trials: Annotated[tuple[int, int], typer.Option(help="Sizes of the two studies.")] = (2000, 20000),
) -> None:
    """Measure, and print one line a study."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    opened = open_storage(storage, create=True)
    claims = shared_claims(opened)
    if claims is None or not isinstance(opened, RDBStorage):
        raise InputError("--storage: sweeps share a PostgreSQL database only")
    for count in trials:
        said = ", ".join(f"{what} {ms:.1f} ms" for what, ms in figures_ms(opened, claims, count).items())
        print(f"{count} trials: {said}", flush=True)
    claims.close()


if __name__ == "__main__":
    with one_line_errors():
        typer.run(main)
