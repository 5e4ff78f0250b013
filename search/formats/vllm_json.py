"""vLLM's JSON of block-scaled GEMMs: for each (N, K, device, dtype), knobs by M; the nearest M serves.

Source: ``get_w8a8_block_fp8_configs`` of vLLM and the files of its ``quantization/utils/configs``. Each M is a trial;
files of another dtype than MXFP4 are of other operations. The files hold no times.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from kernels.device import GFX950, DeviceKey
from kernels.problem import BLOCK, GemmShape
from kernels.tables.rows import TableRow, TunedTable
from search.formats.format import (
    TRITON_KNOBS,
    Entry,
    Format,
    Old,
    Reading,
    Trial,
    Written,
    judged,
    make_config,
    merged,
    our_knobs,
    reading,
)  # fmt: skip

DEVICES: Final[Mapping[str, DeviceKey]] = {
    "AMD_Instinct_MI350X": GFX950, "AMD_Instinct_MI355X": GFX950, "AMD_Instinct_MI355_OAM": GFX950,
    "NVIDIA_H200": DeviceKey("sm_90", 132), "NVIDIA_H100_80GB_HBM3": DeviceKey("sm_90", 132),
}  # fmt: skip
DTYPE: Final = "mxfp4_w4a4"
DTYPES: Final = (DTYPE, "mxfp4")
FAMILY: Final = "staged_triton"
IGNORED: Final = {"kpack"}  # read by no kernel here
VERSION: Final = "triton_version"
PROTOCOL: Final = "published for vLLM without a time"
_NAME = re.compile(
    r"N=(?P<N>\d+),K=(?P<K>\d+),device_name=(?P<device>[^,]+)(?:,dtype=(?P<dtype>[^,]+))?(?:,block_shape=.*)?\.json"
)


def recognises(path: Path, text: str) -> bool:
    """Whether the file has a name as vLLM looks it up."""
    return _NAME.fullmatch(path.name) is not None


def read(path: Path, text: str) -> Reading:
    """A trial for each M."""
    match = _NAME.fullmatch(path.name)
    assert match is not None
    content: dict[str, Any] = json.loads(text)
    entries = ((f"{path.name} M={key}", (key, body)) for key, body in content.items() if key != VERSION)
    return reading(entries, lambda entry: judged(_trial(match, *entry)))


def _trial(name: re.Match[str], key: str, body: dict[str, Any]) -> Trial:
    if name["dtype"] not in DTYPES:
        raise ValueError(f"dtype {name['dtype']} is of another operation than MXFP4")
    if name["device"] not in DEVICES:
        raise ValueError(f"device {name['device']} is unknown")
    device = DEVICES[name["device"]]
    values = our_knobs(body, TRITON_KNOBS, IGNORED)
    if not device.has_scaled_fp4:
        values["quantizer"] = "software"
    shape = GemmShape(int(key), int(name["N"]), int(name["K"]))
    return Trial(device, shape, FAMILY, make_config(FAMILY, values), protocol=PROTOCOL, reason=PROTOCOL)


def write_table(table: TunedTable, old: Old) -> Written:
    """The rows of ``staged_triton`` without a split of K, merged into the files by (N, K)."""
    return merged(table.rows, old, partial(_entry, table.device), _in_order)


def _entry(device: DeviceKey, row: TableRow) -> Entry:
    name = next((name for name, key in DEVICES.items() if key == device), None)
    values = row.config.to_dict()
    if name is None:
        raise ValueError(f"vLLM has no name for {device}")
    if row.family != FAMILY:
        raise ValueError(f"{row.family} is no kernel that vLLM's files are for")
    if values["split_k"] != 1:
        raise ValueError("vLLM's files cannot say a split of K")
    file = f"N={row.N},K={row.K},device_name={name},dtype={DTYPE},block_shape=[1,{BLOCK}].json"
    return file, str(row.M), {theirs: values[ours] for theirs, ours in TRITON_KNOBS.items()}


def _in_order(content: Mapping[str, Any]) -> dict[str, Any]:
    other = [key for key in content if not key.isdecimal()]
    return {key: content[key] for key in (*other, *sorted(content.keys() - set(other), key=int))}


FORMAT = Format(
    recognises=recognises, read=read, write_table=write_table,
    lost="times, quantizer, num_xcds, cache_modifier, and the tiles of the quantise kernel",
)  # fmt: skip
