"""File formats of neighbouring projects, both ways: each a file of its own with a ``FORMAT``, and one line here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from kernels.errors import InputError

if TYPE_CHECKING:
    from search.formats.format import Format, LeftOut, Reading

FORMATS: Final[Mapping[str, Literal["table", "trials"]]] = MappingProxyType(  # what each is written from
    {
        "aiter-csv": "table",
        "aiter-json": "table",
        "aiter-untuned": "table",
        "vllm-json": "table",
        "gpumode": "table",
        "kernel-tuner": "trials",
        "t4": "trials",
    }
)
TABLE_FORMAT = "yaml"  # of our own tables, which search.commands.export writes
PUBLISHED_SUFFIXES = (".json", ".py")  # of files that are never results of this project
SUFFIXES = (".csv", *PUBLISHED_SUFFIXES)  # of the files that can be read
MOST_BYTES = 1 << 28  # of a file


@cache
def format_named(name: str) -> Format:
    """One of ``FORMATS``; its file is loaded now, and with it Triton."""
    format: Format = import_module(f"{__name__}.{name.replace('-', '_')}").FORMAT
    return format


def of_source(source: Literal["table", "trials"]) -> str:
    """Names of the formats that are written from ``source``, for people."""
    return ", ".join(name for name, needed in FORMATS.items() if needed == source)


def read_published(path: Path) -> Reading | None:
    """What a published file says, or all of them in a folder; None where ``path`` is none.

    Raises:
        InputError: A file of one of the formats that is torn, or that holds no results.
    """
    files = sorted(_files(path)) if path.is_dir() else [path]
    readings = [reading for file in files if (reading := _read(file, several=path.is_dir())) is not None]
    if not readings:
        return None
    from search.formats.format import Reading  # loads Triton, which naming the formats does not need

    return Reading(
        tuple(trial for reading in readings for trial in reading.trials),
        tuple(one for reading in readings for one in reading.left_out),
        len(readings),
        len(files) - len(readings),
    )


def _files(folder: Path) -> Iterator[Path]:
    return (file for file in folder.rglob("*") if file.suffix in SUFFIXES and file.is_file())


def _read(path: Path, several: bool) -> Reading | None:
    if path.suffix not in SUFFIXES or not path.is_file() or path.stat().st_size > MOST_BYTES:
        return None
    try:
        text = path.read_text(encoding="utf-8-sig")
        format = next((one for one in map(format_named, FORMATS) if one.recognises(path, text)), None)
        if format is None or format.read is None or (several and not format.holds_results):
            return None
        reading = format.read(path, text)
    except InputError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read ({str(error).splitlines()[0]}); a torn file? restore it") from error
    return replace(reading, left_out=tuple(_placed(path, one) for one in reading.left_out)) if several else reading


def _placed(path: Path, one: LeftOut) -> LeftOut:
    return one if one.where.startswith(path.name) else replace(one, where=f"{path.name} {one.where}")
