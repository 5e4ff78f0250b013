"""AITER's CSV of tuned a4w4 GEMMs: which of its kernels serves a shape, and how long the GEMM alone takes.

Source: ``aiter/configs/a4w4_blockscale_tuned_gemm.csv`` and ``aiter/ops/gemm_op_a4w4.py`` of AITER. The key is (gfx,
cu_num, M, N, K); ``splitK`` is a binary logarithm; ``us`` is -1 where the kernel cannot run the shape and inf where it
faulted; ``errRatio`` is the part of the elements that were off. The first column is missing from older files.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from kernels.device import GFX950, DeviceKey
from kernels.families.staged_ck import StagedCkConfig
from kernels.problem import GemmShape
from kernels.rocm.code_objects import SPLIT_TILES
from kernels.tables.rows import TableRow, TunedTable
from search.formats.format import WHOLE, Format, LeftOut, Old, Reading, Trial, Written, judged, reading

HEADER: Final = (
    "gfx", "cu_num", "M", "N", "K", "kernelId", "splitK", "us", "kernelName", "tflops", "bw", "errRatio",
)  # fmt: skip
KEY: Final = HEADER[:5]
PROTOCOL: Final = "AITER's tuner: the GEMM alone, A is quantised already"
FAMILY: Final = "staged_ck"
ARCH_OF_CUS: Final[Mapping[int, str]] = {256: GFX950.arch, 80: "gfx942", 304: "gfx942"}  # of files without ``gfx``
TOLERATED: Final = 0.05  # part of the elements that AITER's tuner lets be off by default (its base_tuner.py)
UNKNOWN_ID: Final = -1  # AITER finds a code object by its name
_KERNEL = re.compile(r"_ZN5aiter\d+f4gemm_bf16_per1x32Fp4_BpreShuffle_(\d+)x(\d+)E")


def recognises(path: Path, text: str) -> bool:
    """Whether the file has the columns of a tuned GEMM table."""
    return path.suffix == ".csv" and {"M", "N", "K", "us"} <= set(_names(text.partition("\n")[0]))


def _names(header: str) -> list[str]:
    """Columns as they are called here; some files write the extents in small letters."""
    names = [cell.strip() for cell in header.split(",")]
    return [name.upper() if name in ("m", "n", "k") else name for name in names]


def read(path: Path, text: str) -> Reading:
    """The rows that run one of AITER's code objects."""
    lines = ((f"line {line}", record) for line, record in _records(text))
    return reading(lines, lambda record: judged(_trial(record)))


def _records(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Line number and cells by column."""
    first, _, rest = text.partition("\n")
    header = _names(first)
    reader = csv.reader(io.StringIO(rest, newline=""))
    for row in reader:
        cells = [cell.strip() for cell in row]
        if any(cells):
            yield 1 + reader.line_num, dict(zip(header, cells, strict=False))


def _trial(record: Mapping[str, str]) -> Trial:
    tile = _tile(record.get("kernelName", ""))
    M, N, K, split = (_whole(record, name) for name in ("M", "N", "K", "splitK"))
    config = StagedCkConfig(*tile, log2_k_split=split if tile in SPLIT_TILES else 0)
    time_us = float(record["us"])
    outcome, reason = _outcome(time_us, record.get("errRatio"))
    return Trial(
        _device(record), GemmShape(M, N, K), FAMILY, config, outcome, time_us if outcome == "ok" else None,
        reason=reason, protocol=PROTOCOL,
    )  # fmt: skip


def _tile(kernel: str) -> tuple[int, int]:
    match = _KERNEL.fullmatch(kernel)
    if match is not None:
        return int(match[1]), int(match[2])
    kind = "a CK kernel of a4w4" if kernel.startswith("a4w4") else "a kernel of another operation"
    raise ValueError(f"{kind}, which no family here runs")


def _whole(record: Mapping[str, str], name: str) -> int:
    """A whole number, also one that pandas wrote as ``16.0``."""
    try:
        value = float(record[name])
    except (KeyError, ValueError):
        value = math.nan
    if not value.is_integer():
        raise ValueError(f"{name} is no whole number")
    return int(value)


def _outcome(time_us: float, wrong: str | None) -> tuple[str, str]:
    if time_us == -1:
        return "illegal", "AITER found that the kernel cannot run the shape"
    if not (math.isfinite(time_us) and time_us > 0):
        return "crashed", "the kernel faulted in AITER's tuner"
    if wrong and not float(wrong) <= TOLERATED:  # NaN too
        return "wrong_result", f"{wrong} of the elements were off in AITER's tuner"
    return "ok", ""


def _device(record: Mapping[str, str]) -> DeviceKey:
    cus = _whole(record, "cu_num")
    arch = record.get("gfx") or ARCH_OF_CUS.get(cus)
    if arch is None:
        raise ValueError(f"{cus} compute units and no column gfx: of an unknown device")
    return DeviceKey(arch, cus)


def write_table(table: TunedTable, old: Old) -> Written:
    """The measured rows of ``staged_ck``, in the place of rows of the same key; other lines stay as they are."""
    text = old(WHOLE) or ",".join(HEADER) + "\n"
    header, *lines = text.splitlines()
    known = [(_key(record), lines[line - 2], record) for line, record in _records(text)]
    ids = {
        record["kernelName"]: record["kernelId"] for _, _, record in known if {"kernelName", "kernelId"} <= set(record)
    }
    unsaid = {row: _unsaid(row, table.device) for row in table.rows}
    records = [_record(row, table.device, ids) for row, reason in unsaid.items() if not reason]
    names = _names(header)
    ours = {_key(record if "gfx" in names else {**record, "gfx": ""}): _line(record, names) for record in records}
    replaced = {key for key, _, _ in known if key in ours}
    kept = [line for key, line, _ in known if key not in ours]
    left_out = tuple(LeftOut(str(row.shape), reason) for row, reason in unsaid.items() if reason)
    merged = "\n".join((header, *kept, *ours.values())) + "\n"
    return Written({WHOLE: merged}, len(ours) - len(replaced), len(replaced), left_out)


def _line(record: Mapping[str, str], names: Sequence[str]) -> str:
    return ",".join(record.get(name, "") for name in names)


def _unsaid(row: TableRow, device: DeviceKey) -> str:
    """Why AITER's file cannot hold the row; "" where it can."""
    if row.family != FAMILY:
        return f"{row.family} is no kernel that this file can name"
    if row.time_us is None:
        return "predicted only; the file holds measured times"
    return "" if device.arch == GFX950.arch else f"AITER has no such kernel for {device.arch}"


def _record(row: TableRow, device: DeviceKey, ids: Mapping[str, str]) -> dict[str, str]:
    assert isinstance(row.config, StagedCkConfig) and row.time_us is not None
    tile = f"{row.config.BLOCK_M}x{row.config.BLOCK_N}"
    name = f"f4gemm_bf16_per1x32Fp4_BpreShuffle_{tile}"
    kernel = f"_ZN5aiter{len(name)}{name}E"
    M, N, K = row.M, row.N, row.K
    packed_bytes = (M + N) * K // 2 + 2 * M * N  # as AITER counts them: without the scales
    values = (
        device.arch, device.cu_count, M, N, K, ids.get(kernel, UNKNOWN_ID), row.config.log2_k_split, row.time_us,
        kernel, round(row.shape.flops / row.time_us * 1e-6, 2), round(packed_bytes / row.time_us * 1e-3, 2), 0.0,
    )  # fmt: skip
    return dict(zip(HEADER, map(str, values), strict=True))


def _key(record: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(record.get(name, "") for name in KEY)


FORMAT = Format("a4w4_blockscale_tuned_gemm.csv", recognises, read, write_table)
