"""Records of the trials that Optuna's storages hold. Apart from the results, because Optuna is slow to load."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, RDBStorage
from optuna.trial import TrialState
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from kernels.errors import InputError
from search.record import RECORD, Record
from search.storage import open_storage

FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)
RECORDS_SQL = """
    SELECT trials.number, attributes.value_json
    FROM trial_user_attributes AS attributes JOIN trials ON trials.trial_id = attributes.trial_id
    WHERE attributes.key = :key AND trials.state IN (:complete, :pruned)
    ORDER BY trials.study_id, trials.number
"""  # Optuna 5


def stored_records(location: Path | str) -> list[Record]:
    """Records of the finished trials; one that was cut short has none.

    Args:
        location: As :func:`search.storage.open_storage` takes it.

    Raises:
        InputError: Nothing there, not a storage, or a torn record.
    """
    storage = open_storage(location, create=False)
    try:
        return list(_records(storage))
    except (SQLAlchemyError, StorageInternalError) as error:
        raise InputError(f"{location}: cannot be read ({str(error).splitlines()[0]})") from error


def _records(storage: BaseStorage) -> Iterator[Record]:
    if isinstance(storage, RDBStorage):
        yield from _database_records(storage)
        return
    for study in storage.get_all_studies():
        trials = storage.get_all_trials(study._study_id, deepcopy=False, states=FINISHED)
        for trial in trials:
            if RECORD in trial.user_attrs:
                yield {"trial": trial.number, **trial.user_attrs[RECORD]}


def _database_records(storage: RDBStorage) -> Iterator[Record]:
    """The same by one query of Optuna's tables: its own API also rebuilds parameters, which takes ten times as long."""
    with storage.engine.connect() as connection:
        names = {"key": RECORD, "complete": FINISHED[0].name, "pruned": FINISHED[1].name}
        for number, record in connection.execute(text(RECORDS_SQL), names):
            try:
                yield {"trial": number, **json.loads(record)}
            except (ValueError, TypeError) as error:
                place = f"{storage.engine.url.database}: trial {number}"
                raise InputError(f"{place} has a torn record ({error}); restore the file") from error
