"""Where the shipped spaces, shapes and tables lie, and where the tables go that a user makes."""

from __future__ import annotations

import os
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

DISTRIBUTION = "mxfp4-tune"
_MARK = Path("spaces") / "fused.yaml"  # of a folder that is ours


def in_checkout() -> bool:
    """Whether the program runs from its repository, not from an installed wheel."""
    return (_checkout() / _MARK).is_file()


def configs_folder() -> Path:
    """``configs`` of the checkout that this module is in, or the folder ``share/mxfp4-tune`` of an installed wheel."""
    return _checkout() if in_checkout() else _installed()


def tables_folder() -> Path:
    """Where tuned tables are written: ``configs/tables`` of a checkout, else the user's folder for data."""
    return (_checkout() if in_checkout() else user_data()) / "tables"


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


def user_data() -> Path:
    """``$XDG_DATA_HOME/mxfp4-tune`` or ``~/.local/share/mxfp4-tune``."""
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / DISTRIBUTION
