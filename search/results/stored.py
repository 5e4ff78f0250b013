"""What a storage holds as a frame: all of it, or some studies, read without Optuna's own objects.

Beside an SQLite file that has grown, a Parquet file keeps the columns of what was read: trials are only ever added,
so that the next reading asks for the newer ones. It can be thrown away.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import optuna
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, RDBStorage
from optuna.trial import TrialState
from sqlalchemy import Connection, Engine, Integer, String, bindparam, text
from sqlalchemy.exc import SQLAlchemyError

from kernels.disk import replace_file
from kernels.errors import InputError
from kernels.problem import GemmShape
from search.results.columns import COLUMNS, arrow_table, frame_of_table
from search.results.record import COLUMNS_OF, FINAL, RECORD, Listed, Record, unpacked
from search.results.storage import open_to_read
from search.results.trials import KeptTrial, kept_trials, listed

FINISHED: Final = (TrialState.COMPLETE, TrialState.PRUNED)
AT_ONCE: Final = 2_000  # records that are in memory with their names
WORTH_KEEPING: Final = 5_000  # trials that the Parquet file lacks: reading them takes about a quarter of a second
PLACE: Final = ("study_id", "trial_id")  # columns of the Parquet file before ours
ASKED: Final = "asked"  # attribute of a study: when a sweep began, and the shapes that it was asked for

_FROM = f"""
    FROM trials JOIN trial_user_attributes AS attributes ON trials.trial_id = attributes.trial_id
    WHERE attributes.key = '{RECORD}' AND trials.state IN ('{FINISHED[0].name}', '{FINISHED[1].name}')
"""  # Optuna 5
_RECORDS = f"SELECT trials.study_id, trials.trial_id, trials.number, attributes.value_json {_FROM}"
ALL = text(f"{_RECORDS} AND trials.trial_id > :after ORDER BY trials.trial_id")
SOME = text(f"{_RECORDS} AND trials.study_id IN :studies ORDER BY trials.trial_id").bindparams(
    bindparam("studies", type_=Integer(), expanding=True)
)
NEWER = text(f"""
    SELECT trials.trial_id, trials.number, attributes.value_json, EXISTS (
        SELECT 1 FROM trial_user_attributes AS final WHERE final.trial_id = trials.trial_id AND final.key = '{FINAL}'
    ) {_FROM} AND trials.study_id = :study AND trials.trial_id > :after ORDER BY trials.trial_id
""")
ONE = text(f"{_RECORDS} AND trials.trial_id = :trial")
COUNT = text(f"SELECT count(*) {_FROM} AND trials.trial_id <= :last")
STUDIES = text("SELECT study_id, study_name FROM studies ORDER BY study_id")
ATTRIBUTES = text("SELECT key, value_json FROM study_user_attributes WHERE key LIKE :key")
OF_STUDY = text(f"{ATTRIBUTES} AND study_id = :study")
SEARCHED = text(f"""
    SELECT studies.study_name, count(*) FROM trials JOIN studies ON trials.study_id = studies.study_id
    WHERE studies.study_name IN :names AND trials.state IN ('{FINISHED[0].name}', '{FINISHED[1].name}')
    AND NOT EXISTS (
        SELECT 1 FROM trial_user_attributes AS final WHERE final.trial_id = trials.trial_id AND final.key = '{FINAL}'
    )
    GROUP BY studies.study_name
""").bindparams(bindparam("names", type_=String(), expanding=True))


def study_names(storage: BaseStorage) -> list[str]:
    """Of every study, oldest first."""
    if not isinstance(storage, RDBStorage):
        return [study.study_name for study in storage.get_all_studies()]
    with storage.engine.connect() as connection:
        return [name for _, name in connection.execute(STUDIES)]


def searched_trials(storage: BaseStorage, names: Collection[str]) -> dict[str, int]:
    """How many trials of their search the studies ``names`` hold; those of finals repeat one."""
    if isinstance(storage, RDBStorage):
        with storage.engine.connect() as connection:
            return {name: count for name, count in connection.execute(SEARCHED, {"names": list(names)})}
    trials = {
        study.study_name: storage.get_all_trials(study._study_id, states=FINISHED, deepcopy=False)
        for study in storage.get_all_studies() if study.study_name in names
    }  # fmt: skip
    return {name: sum(FINAL not in trial.user_attrs for trial in found) for name, found in trials.items()}


def note_asked(study: optuna.Study, shapes: Iterable[GemmShape]) -> None:
    """Write into ``study`` what a sweep was asked for, so that shapes that it never began are known later."""
    study.set_user_attr(ASKED, [time.time(), list(map(str, shapes))])


def asked_shapes(location: Path | str) -> list[str]:
    """What the newest sweep was asked for that wrote there."""
    storage = open_to_read(location)
    if isinstance(storage, Engine):
        with storage.connect() as connection:
            notes = [json.loads(value) for _, value in connection.execute(ATTRIBUTES, {"key": ASKED})]
    else:
        notes = [study.user_attrs[ASKED] for study in storage.get_all_studies() if ASKED in study.user_attrs]
    return max(notes, default=(0.0, []))[1]


def newer_trials(connection: Connection, study: int, after: int) -> list[tuple[int, KeptTrial]]:
    """The trials of a study that were added after the one of Optuna's number ``after``, each with its own, in order.

    Optuna locks a study while it adds a trial, so that a trial with a lower number does not come later.
    """
    rows = connection.execute(NEWER, {"study": study, "after": after}).all()
    if not rows:
        return []
    columns = _listed(connection.execute(OF_STUDY, {"key": f"{COLUMNS_OF}%", "study": study}))
    return [
        (trial, KeptTrial(number, unpacked(json.loads(value), columns), bool(final)))
        for trial, number, value, final in rows
    ]


def stored_frame(location: Path | str, studies: Collection[str] | None = None) -> pd.DataFrame:
    """The finished trials of ``studies``, or of all, with all ``COLUMNS``, by study and number.

    Args:
        location: As :func:`search.results.storage.open_storage` takes it.

    Raises:
        InputError: Nothing there, not a storage, a torn record, or one of a newer version.
    """
    return held_frame(open_to_read(location), location, studies)


def held_frame(
    storage: Engine | BaseStorage, location: Path | str, studies: Collection[str] | None = None
) -> pd.DataFrame:
    """As :func:`stored_frame`, of what is open already."""
    try:
        tables = [_table(storage, studies).select(list(COLUMNS))]
    except InputError:
        raise
    except (SQLAlchemyError, StorageInternalError, ValueError) as error:
        raise InputError(f"{location}: cannot be read ({str(error).splitlines()[0]}); restore it") from error
    return frame_of_table(tables.pop())  # which is the last to hold the columns, and lets each go when it is converted


def _table(storage: Engine | BaseStorage, studies: Collection[str] | None) -> pa.Table:
    engine = storage.engine if isinstance(storage, RDBStorage) else storage
    if isinstance(engine, BaseStorage):
        return _tables([list(_journal_records(engine, studies))])
    database = str(engine.url.database)
    with engine.connect() as connection:
        if studies is not None:
            chosen = [number for number, name in connection.execute(STUDIES) if name in studies]
            return _read(connection, SOME, database, studies=chosen)
        file = Path(database) if engine.name == "sqlite" and Path(database).is_file() else None
        cached = None if file is None else Cached.read(_cache_path(file), connection)
        if cached is None:
            table = _read(connection, ALL, database, after=-1)
        else:
            newer = _read(connection, ALL, database, after=cached.last)
            table = pa.concat_tables([cached.table, newer]) if len(newer) else cached.table
        if file is not None and len(table) - (0 if cached is None else len(cached.table)) >= WORTH_KEEPING:
            _keep(table, _cache_path(file), connection)
    return table if _is_sorted(table) else table.sort_by([(name, "ascending") for name in PLACE])


def _is_sorted(table: pa.Table) -> bool:
    """Whether the studies of ``table``, whose trials are in order, are so too."""
    return bool((np.diff(table[PLACE[0]].to_numpy()) >= 0).all())


def _journal_records(storage: BaseStorage, studies: Collection[str] | None) -> Iterator[tuple[int, int, Record]]:
    for study in storage.get_all_studies():
        if studies is None or study.study_name in studies:
            trials = storage.get_all_trials(study._study_id, deepcopy=False, states=FINISHED)
            for trial in kept_trials(trials, listed(study.user_attrs)):
                yield study._study_id, trial.number, {"trial": trial.number, **trial.record}


def _read(connection: Connection, query: Any, database: str, **parameters: Any) -> pa.Table:
    """What ``query`` finds; Optuna's own way also rebuilds its parameters, which takes ten times as long."""
    columns = _versions(connection)
    rows = connection.execution_options(stream_results=True).execute(query, parameters)
    return _tables(
        [(study, trial, _record(value, number, columns, database)) for study, trial, number, value in part]
        for part in rows.partitions(AT_ONCE)
    )


def _versions(connection: Connection) -> Listed:
    return _listed(connection.execute(ATTRIBUTES, {"key": f"{COLUMNS_OF}%"}))


def _listed(rows: Iterable[Any]) -> Listed:
    return listed({key: json.loads(value) for key, value in rows})


def _record(value: str, number: int, columns: Listed, database: str) -> Record:
    try:
        record = unpacked(json.loads(value), columns)
    except (ValueError, TypeError) as error:
        raise InputError(f"{database}: trial {number} has a torn record ({error}); restore the file") from error
    unknown = record.keys() - COLUMNS.keys()
    if unknown:
        raise InputError(f"{database}: unknown column {', '.join(sorted(unknown))}; use the version that wrote it")
    return {"trial": number, **record}


def _tables(parts: Any) -> pa.Table:
    """Records, with what places them, as columns; a part at a time has its names."""
    tables = [_placed(part) for part in parts]
    return pa.concat_tables(tables) if tables else _placed([])


def _placed(part: Sequence[tuple[int, int, Record]]) -> pa.Table:
    table = arrow_table([record for _, _, record in part])
    for place, name in enumerate(PLACE):
        table = table.add_column(place, name, pa.array([row[place] for row in part], pa.int64()))
    return table


def _cache_path(file: Path) -> Path:
    return file.with_name(f".{file.name}.parquet")


@dataclass(frozen=True)
class Cached:
    """What an earlier reading left.

    Args:
        last: Number of the last trial in it; the storage has added those above since.
    """

    table: pa.Table
    last: int

    @classmethod
    def read(cls, path: Path, connection: Connection) -> Cached | None:
        """What is in ``path``; None where it is missing, torn, of another version, or of other trials."""
        try:
            table = pq.read_table(path)
        except (OSError, pa.ArrowInvalid):
            return None
        marks = table.schema.metadata or {}
        if table.column_names != [*PLACE, *COLUMNS] or b"mark" not in marks:
            return None
        last = int(marks[b"last"])
        same = connection.execute(COUNT, {"last": last}).scalar() == len(table)
        return cls(table, last) if same and marks[b"mark"] == _mark(connection, last) else None


def _mark(connection: Connection, trial: int) -> bytes:
    """Tells one trial from that of the same number in another file: it holds the time of its beginning."""
    return hashlib.sha256(repr(connection.execute(ONE, {"trial": trial}).first()).encode()).hexdigest().encode()


def _keep(table: pa.Table, path: Path, connection: Connection) -> None:
    """Write the file, where that is possible: a folder may be one that others own."""
    last = max(table["trial_id"].to_pylist())
    marks = {b"last": str(last).encode(), b"mark": _mark(connection, last)}
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata(marks), sink, compression="zstd")
    with suppress(OSError):
        replace_file(path, sink.getvalue().to_pybytes())
