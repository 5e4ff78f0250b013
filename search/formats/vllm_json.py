"""vLLM's JSON of block-scaled GEMMs: for each (N, K, device, dtype), knobs by M; the nearest M serves.

Source: ``get_w8a8_block_fp8_configs`` of vLLM and the files of its ``quantization/utils/configs``. Each M is a trial;
files of another dtype than MXFP4 are of other operations. The files hold no times.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kernels.device import GFX950, DeviceKey
from kernels.problem import BLOCK, GemmShape
from kernels.tables.rows import TableRow, TunedTable
from search.formats.format import Format, LeftOut, Old, Reading, Trial, Written, judged, make_config, old_json

DEVICES: Final[Mapping[str, DeviceKey]] = {
    "AMD_Instinct_MI350X": GFX950, "AMD_Instinct_MI355X": GFX950, "AMD_Instinct_MI355_OAM": GFX950,
    "NVIDIA_H200": DeviceKey("sm_90", 132), "NVIDIA_H100_80GB_HBM3": DeviceKey("sm_90", 132),
}  # fmt: skip
DTYPE: Final = "mxfp4_w4a4"
DTYPES: Final = (DTYPE, "mxfp4")
FAMILY: Final = "staged_triton"
KNOBS: Final = {
    "BLOCK_SIZE_M": "BLOCK_M", "BLOCK_SIZE_N": "BLOCK_N", "BLOCK_SIZE_K": "BLOCK_K", "GROUP_SIZE_M": "GROUP_M",
    "num_warps": "num_warps", "num_stages": "num_stages", "waves_per_eu": "waves_per_eu",
    "matrix_instr_nonkdim": "matrix_instr_nonkdim",
}  # fmt: skip
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
    trials: list[Trial] = []
    left_out: list[LeftOut] = []
    for key, body in content.items():
        if key == VERSION:
            continue
        try:
            trials.append(judged(_trial(match, key, body)))
        except (ValueError, TypeError) as error:
            left_out.append(LeftOut(f"{path.name} M={key}", str(error)))
    return Reading(tuple(trials), tuple(left_out))


def _trial(name: re.Match[str], key: str, body: Mapping[str, Any]) -> Trial:
    if name["dtype"] not in DTYPES:
        raise ValueError(f"dtype {name['dtype']} is of another operation than MXFP4")
    if name["device"] not in DEVICES:
        raise ValueError(f"device {name['device']} is unknown")
    unknown = sorted(body.keys() - KNOBS.keys() - IGNORED)
    if unknown:
        raise ValueError(f"knob {', '.join(unknown)} is unknown here")
    device = DEVICES[name["device"]]
    values = {ours: body[theirs] for theirs, ours in KNOBS.items() if theirs in body}
    if not device.has_scaled_fp4:
        values["quantizer"] = "software"
    shape = GemmShape(int(key), int(name["N"]), int(name["K"]))
    return Trial(device, shape, FAMILY, make_config(FAMILY, values), protocol=PROTOCOL, reason=PROTOCOL)


def write_table(table: TunedTable, old: Old) -> Written:
    """The rows of ``staged_triton`` without a split of K, merged into the files by (N, K)."""
    device = next((name for name, key in DEVICES.items() if key == table.device), None)
    contents: dict[str, dict[str, Any]] = {}
    added, replaced, left_out = 0, 0, []
    for row in table.rows:
        reason = f"vLLM has no name for {table.device}" if device is None else _unsaid(row)
        if reason:
            left_out.append(LeftOut(str(row.shape), reason))
            continue
        name = f"N={row.N},K={row.K},device_name={device},dtype={DTYPE},block_shape=[1,{BLOCK}].json"
        if name not in contents:
            contents[name] = old_json(old, name)
        key = str(row.M)
        replaced, added = replaced + (key in contents[name]), added + (key not in contents[name])
        contents[name][key] = {theirs: row.config.to_dict()[ours] for theirs, ours in KNOBS.items()}
    files = {name: json.dumps(_in_order(content), indent=4) + "\n" for name, content in contents.items()}
    return Written(files, added, replaced, tuple(left_out))


def _unsaid(row: TableRow) -> str:
    """Why vLLM's files cannot hold the row; "" where they can."""
    if row.family != FAMILY:
        return f"{row.family} is no kernel that vLLM's files are for"
    return "vLLM's files cannot say a split of K" if row.config.to_dict()["split_k"] != 1 else ""


def _in_order(content: Mapping[str, Any]) -> dict[str, Any]:
    other = [key for key in content if not key.isdecimal()]
    return {key: content[key] for key in (*other, *sorted(content.keys() - set(other), key=int))}


FORMAT = Format(
    recognises=recognises, read=read, write_table=write_table,
    lost="times, quantizer, num_xcds, cache_modifier, and the tiles of the quantise kernel",
)  # fmt: skip
