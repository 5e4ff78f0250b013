"""Where studies live, and what their names say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import Timeout

from kernels.device import DeviceKey
from kernels.disk import real_path
from kernels.errors import InputError
from kernels.families import study_hash
from kernels.families.sources import STUDY, settled
from kernels.problem import GemmShape
from search.evaluation import PRODUCT_MARK, SIMULATED
from search.results.locks import lock_beside

STUDIES_FILE = "studies.db"  # in a results folder
JOURNAL_SUFFIXES = (".log", ".journal")
SQLITE_SUFFIXES = (".db", ".sqlite", ".sqlite3")
FILE_SUFFIXES = (".parquet", ".csv")  # of results as files, which hold no studies
BUNDLE_SUFFIX = ".zip"  # of what `report --bundle` packs
BUNDLE_RESULTS = "results.parquet"  # the results in there
ONE_WRITER = "wait for it, use another --results, or have both write to PostgreSQL (--storage postgresql+psycopg://...)"
CURE = "name another folder with --results"


def studies_file(location: Path | str) -> Path | None:
    """The file in which the studies of ``location`` are; None where a database server or the memory has them.

    Args:
        location: A results folder (its ``studies.db``), a ``.db``, ``.log`` or ``.journal`` file, or a URL.

    Raises:
        InputError: A file of results, or a file where a folder must be.
    """
    if "://" in str(location):
        return _file_of_url(str(location))
    path = Path(location)
    if path.suffix in FILE_SUFFIXES:
        raise InputError(f"{path}: is a file of results, which keeps no studies; {CURE}, or a .db file with --storage")
    if path.suffix in (*JOURNAL_SUFFIXES, *SQLITE_SUFFIXES):
        return path
    if path.is_file():
        raise InputError(f"{path}: is a file, not a folder of results; name another folder, or a .db file")
    return path / STUDIES_FILE


def holds_studies(location: Path | str) -> bool:
    """Whether studies are at ``location``, or a server is that may have some."""
    path = Path(location)
    return (
        "://" in str(location)
        or path.suffix in (*JOURNAL_SUFFIXES, *SQLITE_SUFFIXES)
        or (path / STUDIES_FILE).is_file()
    )


def _file_of_url(url: str) -> Path | None:
    from sqlalchemy import make_url  # here, because it takes long to load and most locations are paths
    from sqlalchemy.exc import ArgumentError

    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        return None  # opening it says what is wrong
    if parsed.get_backend_name() != "sqlite" or parsed.database in (None, "", ":memory:"):
        return None
    return Path(str(parsed.database).removeprefix("file:"))


@contextmanager
def only_writer(location: Path | str) -> Iterator[None]:
    """Hold the lock of the studies' file, by whatever name it is given; a database server has locks of its own.

    Raises:
        InputError: Another sweep holds it, the folder cannot be written, or :func:`studies_file` refuses.
    """
    path = studies_file(location)
    if path is None:
        yield
        return
    real = real_path(path)
    with ExitStack() as held:
        try:
            if not real.parent.exists():
                held.callback(_remove_if_empty, real.parent)
            real.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(lock_beside(real, wait_s=0))
        except Timeout as error:
            raise InputError(f"{path}: another sweep is writing here; {ONE_WRITER}") from error
        except OSError as error:
            raise InputError(f"{path}: cannot be written ({error.strerror}); {CURE}") from error
        yield


def _remove_if_empty(folder: Path) -> None:
    """Of a sweep that could not begin."""
    with suppress(OSError):
        folder.rmdir()


PROTOCOL = "replay-"  # begins the part of a study's name that says how it was judged; rows keep the recorded protocol


def are_replayed(studies: pd.Series[Any]) -> pd.Series[Any]:
    """Whether each of these names of studies is one of a replay: its times were recorded earlier, and elsewhere."""
    return studies.str.contains(f"/{PROTOCOL}", regex=False).fillna(False).astype(bool)


def are_simulated(protocols: pd.Series[Any]) -> pd.Series[Any]:
    """Whether each of these protocols is one of a simulated GPU, whose times say nothing of a real one."""
    return protocols.str.endswith(PRODUCT_MARK + SIMULATED).fillna(False).astype(bool)


PUBLISHED = "published:"  # begins the study of rows that a file of another project says: it is no study of ours


def first_study(device: DeviceKey, shape: GemmShape, protocol: str, triton: str) -> str:
    """Name of a shape's first study; it holds everything that makes two trials comparable.

    Args:
        protocol: How the objective is obtained, and its version.
    """
    return "/".join((str(device), str(shape), protocol, f"triton-{triton}", study_hash()))


class Rounds:
    """Names of studies by what makes their trials comparable, so that thousands of shapes find theirs at once."""

    def __init__(self, names: Iterable[str]) -> None:
        self._rounds: dict[str, list[str]] = defaultdict(list)
        for name in names:
            self._rounds[_trials_of(name)].append(name)

    def newest(self, base: str) -> str | None:
        """The newest round of the study ``base``, its kernels rearranged or not; None if there is none.

        Args:
            base: ``device/shape/protocol/triton-version/source hash``, the name of the first round; later ones end
                with ``#2``, ``#3``, ….
        """
        rounds = self._rounds.get(_trials_of(base), [])
        return max(rounds, key=lambda name: (_round(name), name == base), default=None)

    def to_open(self, base: str, *, fresh: bool) -> str:
        """The newest round of the study ``base``, or the first one; if ``fresh``, the next one."""
        newest = self.newest(base)
        if newest is None:
            return base
        return f"{base}#{_round(newest) + 1}" if fresh else newest


def _round(name: str) -> int:
    return int(name.partition("#")[2] or 1)


def _trials_of(name: str) -> str:
    """``name`` without its round, its kernels as they are called today."""
    place, _, sources = name.partition("#")[0].rpartition("/")
    return f"{place}/{settled(sources, STUDY)}"
