"""Tuned tables as YAML files. Reading names file, line, row, field and cure; writing is atomic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any, get_args

import yaml

from kernels.config import KernelConfig
from kernels.device import DeviceKey
from kernels.disk import write_atomically
from kernels.errors import InputError
from kernels.families import FAMILIES
from kernels.families.family import Family
from kernels.tables.rows import MEASURED, PREDICTED, SCHEMA, Made, RowKey, TableRow, TunedTable
from kernels.yaml_node import YamlNode, parse_yaml, read_yaml

_HEADER = """\
# Tuned MXFP4 GEMM configurations of {device}: which one serves a shape, how fast, on whose word.
# M, N, K: logical elements. Of the rows of an (N, K), that with the smallest M not below the asked one serves, or else
# that with the largest; where M is not within serves_from (1) .. serves_to (its own M), the untuned default is faster.
# time_us: measured median device time. predicted_us: by the timing model that made.protocol names, which puts it
# between predicted_lo_us and predicted_hi_us; tied: how many others were tried that the model cannot tell from it.
# Written by `run_search.py export`, which keeps a row unless a better evidenced or faster one is found.
"""
_REQUIRED = tuple(f.name for f in fields(TableRow) if f.default is MISSING)
_OPTIONAL = tuple(f.name for f in fields(TableRow) if f.default is not MISSING)
_MADE = tuple(f.name for f in fields(Made) if f.default is MISSING)


def load_table(path: Path) -> TunedTable:
    """The table that ``path`` holds.

    Raises:
        InputError: One line: file, line, row, field, what is wrong, cure. The file is left as it is.
    """
    return _table(read_yaml(path, "sweep and export to make it"))


def readable_text(table: TunedTable, path: Path) -> str:
    """Text of the file, as :func:`dump_table` writes it, of which it is certain that it can be read.

    Args:
        path: Where it is meant to go, for the message; nothing is written.

    Raises:
        InputError: It could not be read back, or would be another table.
    """
    text = dump_table(table)
    problem = "would come back as another table"
    try:
        if _table(parse_yaml(text.encode(), path, "")) == table:
            return text
    except InputError as error:
        problem = str(error)
    raise InputError(f"{path} is left as it was, for what would be written cannot be read: {problem}")


def _table(root: YamlNode) -> TunedTable:
    top = root.mapping(("schema", "device", "entries"))
    if top["schema"].integer() != SCHEMA:
        top["schema"].fail(f"is not {SCHEMA}; use the version of this program that wrote the file")
    device = _device(top["device"])
    rows: dict[RowKey, tuple[TableRow, YamlNode]] = {}
    for node in top["entries"].items("entry"):
        row = _row(node, device)
        if row.key in rows:
            first = rows[row.key][1]
            node.fail(f"{row.shape} has a row already, {first.field} in line {first.line}; keep one")
        rows[row.key] = (row, node)
    return TunedTable(device, tuple(row for row, _ in rows.values()))


def dump_table(table: TunedTable) -> str:
    """Text of the file: one entry a row, in the order of the keys; equal tables give equal texts."""
    device = _flow({"arch": table.device.arch, "cu_count": table.device.cu_count})
    entries = "".join(map(_entry, table.rows)) if table.rows else "  []\n"
    header = _HEADER.format(device=table.device)
    return f"{header}schema: {SCHEMA}\ndevice: {{{device}}}\nentries:\n{entries}"


def write_table(path: Path, table: TunedTable) -> None:
    """Replace ``path`` by ``table`` in one step: readers and crashes see the old file or the new one.

    Raises:
        InputError: The folder is missing or cannot be written, or the table could not be read back.
    """
    write_atomically(path, readable_text(table, path).encode())


def _flow(values: Mapping[str, object]) -> str:
    """Items of a flow mapping, without its braces, in one line."""
    text: str = yaml.safe_dump(
        dict(values), default_flow_style=True, sort_keys=False, width=1 << 30, allow_unicode=True
    )
    return text.strip()[1:-1]


def _entry(row: TableRow) -> str:
    where = {"M": row.M, "N": row.N, "K": row.K, "layout": row.layout, "out_dtype": row.out_dtype}
    facts = {name: getattr(row, name) for name in (*MEASURED, *PREDICTED)}
    known = {
        name: float(value) if name.endswith("_us") else value for name, value in facts.items() if value is not None
    }
    made = {name: value for name, value in asdict(row.made).items() if value is not None}
    opted = {"graph": True} if row.graph else {}
    reach = {name: M for name, M in (("serves_from", row.serves_from), ("serves_to", row.serves_to)) if M is not None}
    return (
        f"  - {{{_flow({**where, 'family': row.family})},\n"
        f"     config: {{{_flow(row.config.to_dict())}}},\n"
        f"     {_flow({'evidence': row.evidence, **known, 'deterministic': row.deterministic, **reach, **opted})},\n"
        f"     made: {{{_flow(made)}}}}}\n"
    )


def _device(node: YamlNode) -> DeviceKey:
    values = node.mapping(("arch", "cu_count"))
    arch, cu_count = values["arch"].text(), values["cu_count"].integer()
    try:
        return DeviceKey(arch, cu_count)
    except ValueError as error:
        field, _, problem = str(error).partition(": ")
        values[field].fail(problem)


def _row(node: YamlNode, device: DeviceKey) -> TableRow:
    values = node.mapping(_REQUIRED, _OPTIONAL)
    M, N, K = (values[name].integer() for name in "MNK")
    family = FAMILIES[values["family"].word(FAMILIES)]
    config = _config(values["config"], family)
    rest = {name: _value(values[name], name) for name in values if name not in ("M", "N", "K", "family", "config")}
    node = YamlNode(node.path, node.node, f"{node.field} ({M}x{N}x{K})")
    try:
        row = TableRow(M, N, K, family.name, config, **rest)
    except ValueError as error:
        node.fail(str(error))
    reason = config.check(row.shape, device)
    if reason is not None:
        node.fail(f"config: {reason} on {device}; correct it, or remove the entry")
    return row


def _value(node: YamlNode, name: str) -> Any:
    if name == "made":
        values = node.mapping(_MADE, ("trial",))
        texts = {key: values[key].text() for key in _MADE if key != "date"}
        trial = values["trial"].integer() if "trial" in values else None
        return Made(date=values["date"].day(), **texts, trial=trial)
    if name in ("deterministic", "graph"):
        return node.flag()
    if name in ("serves_from", "serves_to", "tied"):
        return node.integer()
    return node.number() if name.endswith("_us") else node.text()


def _config(node: YamlNode, family: Family) -> KernelConfig:
    values = node.mapping((), family.knobs)
    return family.config({name: knob_value(value, family, name) for name, value in values.items()})


def knob_value(node: YamlNode, family: Family, name: str) -> int | str:
    """Value of a knob of ``family``, of the type that its field has and within its limits."""
    hint = family.knobs[name]
    return node.integer_within(family.config_type.limits(name)) if hint is int else node.word(get_args(hint))
