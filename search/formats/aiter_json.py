"""AITER's JSON of Triton configurations: for each (N, K) of an operation, which knobs serve which M.

Source: ``aiter/ops/triton/utils/gemm_config_utils.py`` and ``_triton_kernels/gemm/basic`` of AITER. A key ``M_LEQ_x``
serves M up to x if x is one of the bounds of the operation, ``any`` the rest; K in a file's name counts logical
elements. Older releases (0.1.7) have keys of words instead, each for a range that their loader fixes. The files hold no
times, and a file without N and K in its name is a default for all shapes. What an AITER that is here would launch by
them is tried before anything else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from kernels.config import KernelConfig
from kernels.device import ARCHITECTURES, GFX950, DeviceKey, usual_device
from kernels.errors import InputError
from kernels.families.aiter_triton import PLAIN_SCALES_BELOW, next_pow2
from kernels.families.stages import cdiv, round_up
from kernels.problem import GemmShape
from kernels.rocm.aiter_triton import triton_root
from kernels.tables.rows import TableRow, TunedTable
from search.formats.format import (
    TRITON_KNOBS,
    Entry,
    Format,
    LeftOut,
    Old,
    Reading,
    Trial,
    Written,
    judged,
    make_config,
    merged,
    old_json,
    our_knobs,
    reading,
)  # fmt: skip

BOUNDS: Final = (1, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
PRESHUFFLED_BOUNDS: Final = (4, 8, 16, 31, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
LAST_M: Final = 2 * BOUNDS[-1]  # where a key without an upper end is taken to be tuned
# The largest M of each word of the older files; a range ends where the next one begins.
WORDS: Final[Mapping[str, int]] = {
    "small": 31, "small_M16": 31, "medium_M32": 32, "medium_M64": 64, "medium_M128": 128, "large": 256,
    "xlarge_M512": 512, "xlarge_M1024": 1024, "xlarge_M2048": 2048, "xlarge_M4096": 4096, "xlarge": LAST_M,
}  # fmt: skip
DEVICES: Final = {name: usual_device(arch) for arch, row in ARCHITECTURES.items() for name in (arch, *row.products)}
KNOBS: Final = {**TRITON_KNOBS, "cache_modifier": "cache_modifier", "NUM_KSPLIT": "split_k"}
IGNORED: Final = {"kpack", "SPLITK_BLOCK_SIZE"}  # set anew by the launcher, or read by no kernel here
PROTOCOL: Final = "published by AITER without a time"
INCUMBENTS: Final = {
    "aiter_triton_a4w4": "GEMM-AFP4WFP4_PRESHUFFLED",
    "aiter_triton_a16w4": "GEMM-A16WFP4_PRESHUFFLED",
}  # operations by the family that runs AITER's kernel of them
Point = tuple[str, KernelConfig]
_NAME = re.compile(
    r"(?:(?P<device>MI\d+X|gfx\d+)-)?(?P<op>(?:FUSED-|BATCHED_)?(?:GEMM|FF)\w*(?:-[A-Za-z]\w*)*?)"
    r"(?:-B=\d+)?(?:-N=(?P<N>\d+)-K=(?P<K>\d+)|(?P<other>-\w+=.*))?"
)


@dataclass(frozen=True)
class Operation:
    """One of AITER's operations that multiply by MXFP4 weights.

    Args:
        whole: Family that runs it without a split of K.
        split: Family that runs it with one.
        bounds: M that a key can name.
        rows: Whether a tuned table is written as this operation.
    """

    name: str
    whole: str
    split: str
    bounds: tuple[int, ...] = BOUNDS
    rows: bool = False


OPERATIONS: Final = {
    op.name: op
    for op in (
        Operation("GEMM-AFP4WFP4", "staged_triton", "staged_triton"),
        Operation("GEMM-AFP4WFP4_PRESHUFFLED", "staged_triton", "staged_triton", PRESHUFFLED_BOUNDS, rows=True),
        Operation("GEMM-A16WFP4", "fused", "fused_splitk_workspace"),
        Operation("GEMM-A16WFP4_PRESHUFFLED", "fused", "fused_splitk_workspace", rows=True),
        Operation("GEMM_PREQUANT-AFP4WFP4", "fused", "fused_splitk_atomic"),
    )
}


@dataclass(frozen=True)
class _Place:
    """What the path of a file says."""

    operation: str
    device: str
    N: int | None
    K: int | None

    @classmethod
    def of(cls, path: Path) -> _Place | None:
        """None where the name is none of AITER's."""
        parts = path.parts
        nested = parts[-5:-1] if len(parts) > 4 and parts[-3] == "gemm" else ()
        if path.stem == "DEFAULT" and nested:
            return cls(nested[-1].upper().replace("GEMM_", "GEMM-", 1), nested[0], None, None)
        match = _NAME.fullmatch(path.stem)
        if match is None:
            return None
        name = match["op"] + (match["other"] or "") + ("-GLUON" if "gluon" in parts else "")
        sizes = [None if match[size] is None else int(match[size]) for size in "NK"]
        return cls(name, match["device"] or (nested[0] if nested else GFX950.arch), *sizes)


def recognises(path: Path, text: str) -> bool:
    """Whether the file has one of AITER's names."""
    return path.suffix == ".json" and _Place.of(path) is not None


def read(path: Path, text: str) -> Reading:
    """A trial for each key that serves some M, at the largest M that it serves."""
    content: Any = json.loads(text)
    place = _Place.of(path)
    if place is None or not isinstance(content, dict):
        return Reading((), (LeftOut(path.name, "no configurations by M"),))
    try:
        operation, device = _operation(place)
    except ValueError as error:
        return Reading((), tuple(LeftOut(f"{path.name} {key}", str(error)) for key in content))
    keys = ((f"{path.name} {key}", (M, content[key])) for key, M in _served(content, operation.bounds))
    return reading(keys, lambda entry: judged(_trial(place, operation, device, *entry)))


def _operation(place: _Place) -> tuple[Operation, DeviceKey]:
    if place.operation not in OPERATIONS:
        raise ValueError("an operation that no family here computes")
    if place.device not in DEVICES:
        raise ValueError(f"for {place.device}, which is not supported")
    if place.N is None or place.K is None:
        raise ValueError("a default for every N and K, which names no shape")
    return OPERATIONS[place.operation], DEVICES[place.device]


def _served(content: Mapping[str, Any], bounds: tuple[int, ...]) -> Iterator[tuple[str, int | None]]:
    """Each key and the largest M that it serves; None of a key that serves no M."""
    for key in content:
        bound = re.fullmatch(r"M_LEQ_(\d+)", key)
        if key == "small" and "small_M16" in content:
            yield key, 8
        elif key in WORDS:
            yield key, WORDS[key]
        elif key == "any":
            yield key, LAST_M
        else:
            yield key, int(bound[1]) if bound and int(bound[1]) in bounds else None


def _trial(place: _Place, operation: Operation, device: DeviceKey, M: int | None, body: Any) -> Trial:
    if M is None:
        raise ValueError("a dead key: it is none of the bounds that the operation looks up")
    if not isinstance(body, dict):
        raise ValueError("no configuration")
    assert place.N is not None and place.K is not None
    values = our_knobs(body, KNOBS, IGNORED)
    values["cache_modifier"] = values.get("cache_modifier") or ""
    split_k = effective_split(place.K, int(values["BLOCK_K"]), int(values.pop("split_k", 1)))
    family = operation.split if split_k > 1 else operation.whole
    if family != "fused":
        values["split_k"] = split_k
    config = make_config(family, values)
    return Trial(device, GemmShape(M, place.N, place.K), family, config, protocol=PROTOCOL, reason=PROTOCOL)


def incumbents(shape: GemmShape, families: Collection[str] = tuple(INCUMBENTS)) -> list[Point]:
    """What the AITER that is here would launch for a shape by each of its kernels among ``families``.

    None where no AITER is found, or it has no file.

    Raises:
        InputError: A file of AITER's that cannot be read.
    """
    asked = [(family, operation) for family, operation in INCUMBENTS.items() if family in families]
    if not asked:
        return []
    try:
        root = triton_root()
    except InputError:
        return []
    chosen = [(family, choice(root, operation, shape)) for family, operation in asked]
    return [(family, _incumbent(family, knobs, shape)) for family, knobs in chosen if knobs is not None]


def _incumbent(family: str, knobs: Mapping[str, Any], shape: GemmShape) -> KernelConfig:
    """The choice as the spaces name it: no group larger than there are tiles, a quantise kernel for so many rows."""
    most = next_pow2(cdiv(shape.M, knobs["BLOCK_M"]))
    values = {**knobs, "GROUP_M": 1 if knobs["BLOCK_N"] >= shape.N else min(knobs["GROUP_M"], most)}
    if family == "aiter_triton_a4w4":
        values |= {"QUANT_BLOCK_M": 1, "QUANT_BLOCK_K": 1024} if shape.M < PLAIN_SCALES_BELOW else {}
    return make_config(family, values)


def choice(root: Path, operation: str, shape: GemmShape) -> dict[str, Any] | None:
    """Knobs, under this project's names, that the AITER in ``root`` launches for a shape; None where it has no file.

    The file of (N, K) wins over the operation's default; split and step are what AITER's launcher makes of them.

    Raises:
        InputError: The file cannot be read.
    """
    for path in _candidates(root, operation, shape):
        if path.is_file():
            content = old_json(lambda name: Path(name).read_text(encoding="utf-8"), str(path))
            served = [(M, key) for key, M in _served(content, OPERATIONS[operation].bounds) if M is not None]
            key = next((key for M, key in sorted(served) if shape.M <= M or key in ("any", "xlarge")), None)
            return None if key is None else _launched(content[key], shape)
    return None


def _candidates(root: Path, operation: str, shape: GemmShape) -> Iterator[Path]:
    """Where AITER looks, in its order: the folder of the operation, then the flat ones of older releases."""
    configs = root / "aiter/ops/triton/configs"
    nested = configs / GFX950.arch / "triton/gemm" / operation.lower().replace("-", "_")
    for own in (f"-N={shape.N}-K={shape.K}", ""):
        yield nested / (f"{operation}{own}.json" if own else "DEFAULT.json")
        for device in (GFX950.arch, "MI350X"):
            yield configs / "gemm" / f"{device}-{operation}{own}.json"


def _launched(body: Mapping[str, Any], shape: GemmShape) -> dict[str, Any]:
    values = {ours: body[theirs] for theirs, ours in KNOBS.items() if theirs in body}
    values["cache_modifier"] = values.get("cache_modifier") or ""
    values["BLOCK_N"] = max(32, int(values["BLOCK_N"]))
    if values["BLOCK_K"] >= shape.K:
        return {**values, "BLOCK_K": next_pow2(shape.K), "split_k": 1}
    block_k = int(values["BLOCK_K"])
    split_k = effective_split(shape.K, block_k, int(values.get("split_k", 1)))
    return {**values, "split_k": cdiv(shape.K, round_up(cdiv(shape.K, split_k), block_k))}  # the others have no work


def effective_split(K: int, block_k: int, split_k: int) -> int:
    """Slices that AITER's launcher really makes: halved until slices of whole blocks divide K evenly."""
    while split_k > 1 and K % round_up(cdiv(K, split_k), block_k):
        split_k //= 2
    return max(split_k, 1)


def write_table(table: TunedTable, old: Old) -> Written:
    """The rows of the families that AITER has an operation for, merged into its files by (N, K)."""
    return merged(table.rows, old, partial(_entry, table.device), _in_order)


def _entry(device: DeviceKey, row: TableRow) -> Entry:
    operation = next((op for op in OPERATIONS.values() if op.rows and row.family in (op.whole, op.split)), None)
    if operation is None:
        raise ValueError(f"{row.family} is no Triton operation of AITER")
    if device.arch != GFX950.arch:
        raise ValueError(f"AITER has no such operation for {device.arch}")
    if row.M not in operation.bounds:
        raise ValueError(f"{operation.name} looks up no M of {row.M}")
    values: dict[str, Any] = {"split_k": 1, **row.config.to_dict()}
    if effective_split(row.K, values["BLOCK_K"], values["split_k"]) != values["split_k"]:
        raise ValueError(f"AITER's launcher would not split K into {values['split_k']}")
    values["cache_modifier"] = values["cache_modifier"] or None
    body = {theirs: values[ours] for theirs, ours in KNOBS.items()}
    return f"{operation.name}-N={row.N}-K={row.K}.json", f"M_LEQ_{row.M}", body


def _in_order(content: Mapping[str, Any]) -> dict[str, Any]:
    """Keys by M, and ``any`` last, which AITER needs: what serves the largest M where no file had one."""
    bounded = sorted((key for key in content if key.startswith("M_LEQ_")), key=lambda key: int(key[6:]))
    rest = [key for key in content if key not in bounded and key != "any"]
    last = content.get("any", content[bounded[-1]] if bounded else None)
    return {**{key: content[key] for key in (*bounded, *rest)}, "any": last}


FORMAT = Format(
    recognises=recognises, read=read, write_table=write_table,
    lost="times, quantizer, num_xcds, and the tiles of the quantise and reduction kernels, which AITER fixes",
)  # fmt: skip
