"""File formats of neighbouring projects, both ways: one file and one line each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from kernels.errors import InputError
from search.formats import aiter_csv, aiter_json, aiter_untuned, gpumode, kernel_tuner, t4, vllm_json
from search.formats.format import Format, LeftOut, Reading, grouped

FORMATS: Mapping[str, Format] = {
    format.name: format
    for format in (
        aiter_csv.FORMAT,
        aiter_untuned.FORMAT,
        aiter_json.FORMAT,
        vllm_json.FORMAT,
        kernel_tuner.FORMAT,
        t4.FORMAT,
        gpumode.FORMAT,
    )
}
PUBLISHED_SUFFIXES = (".json", ".py")  # of files that are never results of this project
SUFFIXES = (".csv", *PUBLISHED_SUFFIXES)  # of the files that can be read
MOST_BYTES = 1 << 28  # of a file


def read_published(path: Path) -> Reading | None:
    """What a published file says, or all of them in a folder; None where ``path`` is none.

    Raises:
        InputError: A file of one of the formats that is torn, or that holds no results.
    """
    files = sorted(_files(path)) if path.is_dir() else [path]
    readings = [reading for file in files if (reading := _read(file, several=path.is_dir())) is not None]
    if not readings:
        return None
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
        format = next((one for one in FORMATS.values() if one.recognises(path, text)), None)
        if format is None or format.read is None or (several and format is aiter_untuned.FORMAT):
            return None
        reading = format.read(path, text)
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({str(error).splitlines()[0]}); a torn file? restore it") from error
    return replace(reading, left_out=tuple(_placed(path, one) for one in reading.left_out)) if several else reading


def _placed(path: Path, one: LeftOut) -> LeftOut:
    return one if one.where.startswith(path.name) else replace(one, where=f"{path.name} {one.where}")


__all__ = ["FORMATS", "PUBLISHED_SUFFIXES", "Format", "LeftOut", "Reading", "grouped", "read_published"]
