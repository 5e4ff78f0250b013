"""The formats of ``export``: what writes each, from the merged table."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kernels.tables.file import dump_table
from kernels.tables.rows import TunedTable

FORMATS: Mapping[str, Callable[[TunedTable], str]] = {"yaml": dump_table}
SUBMISSION = "gpumode"  # written from a table, without results: search.formats.gpumode
