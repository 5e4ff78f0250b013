"""Where the shipped spaces, shapes and tables lie, and where the tables go that a user makes."""

from __future__ import annotations

import os
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

DISTRIBUTION = "mxfp4-tune"
_MARK = Path("spaces") / "fused.yaml"  # of a folder that is ours


def configs_folder() -> Path:
    """``configs`` of the checkout that this module is in, or the folder ``share/mxfp4-tune`` of an installed wheel."""
    checkout = _checkout()
    return checkout if (checkout / _MARK).is_file() else _installed()


def tables_folder() -> Path:
    """Where tuned tables are written: ``configs/tables`` of a checkout, else the user's folder for data."""
    checkout = _checkout()
    return checkout / "tables" if (checkout / _MARK).is_file() else _user_data() / "tables"


def shipped_tables() -> Path:
    """Folder of the tables that came with the program; in a checkout that of :func:`tables_folder`."""
    return configs_folder() / "tables"


def _checkout() -> Path:
    return Path(__file__).resolve().parents[1] / "configs"


@cache
def _installed() -> Path:
    """Where the installer put the data files, as it recorded; a folder that is missing where it recorded none."""
    try:
        recorded = files(DISTRIBUTION) or ()
    except PackageNotFoundError:
        recorded = ()
    marks = [Path(str(file.locate())) for file in recorded if file.match(f"share/{DISTRIBUTION}/{_MARK.as_posix()}")]
    return marks[0].resolve().parents[1] if marks else _checkout()


def _user_data() -> Path:
    """``$XDG_DATA_HOME/mxfp4-tune`` or ``~/.local/share/mxfp4-tune``."""
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / DISTRIBUTION
