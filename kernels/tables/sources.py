"""Which table files serve a device: the user's, then the project's own. Those of other devices are counted only."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import triton

from kernels.device import DeviceKey
from kernels.disk import configs_folder, in_checkout, tables_folder
from kernels.tables.file import load_table
from kernels.tables.rows import RowKey, TableRow, TunedTable
from kernels.wording import counted

LOGGER = logging.getLogger(__name__)
TABLES_VARIABLE = "MXFP4_TABLES"  # paths, separated as in PATH
MISSES_VARIABLE = "MXFP4_MISSES"


@dataclass(frozen=True)
class TableSource:
    """One file that was read.

    Args:
        serving: Those of them that can serve the device that was asked for: none if the file is for another device;
            fewer than ``rows`` where a file before it has a row of the same key.
    """

    path: Path
    device: DeviceKey
    rows: int
    serving: tuple[TableRow, ...] = ()

    @property
    def used(self) -> int:
        """How many rows can serve the device."""
        return len(self.serving)


@dataclass(frozen=True)
class DeviceTables:
    """The rows that serve one device.

    Args:
        table: None where no file was made for the device.
        sources: Every file read, in order of precedence.
    """

    table: TunedTable | None = None
    sources: tuple[TableSource, ...] = ()


def user_tables() -> tuple[Path, ...]:
    """Files that ``MXFP4_TABLES`` names, read from the environment now."""
    return tuple(_path(part) for part in os.environ.get(TABLES_VARIABLE, "").split(os.pathsep) if part)


def user_misses() -> Path | None:
    """The file that ``MXFP4_MISSES`` names, read from the environment now."""
    text = os.environ.get(MISSES_VARIABLE, "")
    return _path(text) if text else None


def _path(text: str) -> Path:
    """The path, with the ``~`` that no shell expands in a Dockerfile's ENV or in a service's settings."""
    return Path(os.path.expanduser(text))


def table_path(device: DeviceKey) -> Path:
    """Where the project keeps its table for ``device``."""
    return tables_folder() / f"{device.arch}.yaml"


def own_tables(device: DeviceKey) -> tuple[Path, ...]:
    """The project's own files for the architecture: ``<arch>.yaml`` and ``<arch>-*.yaml``, for other CU counts.

    Those that a user made come before those that came with an installed program.
    """
    found = []
    for folder in [tables_folder()] if in_checkout() else [tables_folder(), configs_folder() / "tables"]:
        found += sorted([*folder.glob(f"{device.arch}.yaml"), *folder.glob(f"{device.arch}-*.yaml")])
    return tuple(found)


def load_device_tables(device: DeviceKey, users: Sequence[Path]) -> DeviceTables:
    """Join the rows for ``device`` of ``users`` and of the project's own tables; of equal keys the first file's.

    Raises:
        InputError: A file cannot be read or holds an invalid row: one line with file, line, field and cure.
    """
    own = own_tables(device)
    rows: dict[RowKey, TableRow] = {}
    sources: list[TableSource] = []
    for path in dict.fromkeys((*users, *own)):
        table = load_table(path)
        new = {row.key: row for row in table.rows if row.key not in rows} if table.device == device else {}
        rows |= new
        sources.append(TableSource(path, table.device, len(table.rows), tuple(new.values())))
        if not table.rows and path not in own:
            LOGGER.warning("%s holds no rows: sweep, and export into it", path)
        if table.device != device:
            level = logging.INFO if path in own else logging.WARNING
            LOGGER.log(level, "%s is for %s and not used on %s: %s",
                       path, table.device, device, counted(len(table.rows), "row"))  # fmt: skip
    others = [row for row in rows.values() if row.other_compiler is not None]
    if others:
        LOGGER.warning("%s for %s made with another Triton than %s, which may rank them otherwise: sweep again, "
                       "then export", counted(len(others), "row"), device, triton.__version__)  # fmt: skip
    found = any(source.device == device for source in sources)
    return DeviceTables(TunedTable(device, tuple(rows.values())) if found else None, tuple(sources))
