"""The report: one HTML file that needs no network, with everything that a sweep found out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kernels.disk import write_atomically
from kernels.errors import InputError
from kernels.wording import counted
from search.report.page.sections import all_of
from search.results.against import Comparison
from search.results.winners import shapes_of, winners

TEMPLATE = Path(__file__).with_name("page.html")
SECTIONS = {
    "winners": "Winners", "shapes": "Each search", "against": "Against", "roofline": "Roofline", "ladders": "M ladders",
    "regret": "Regret", "failures": "Failures", "environment": "Environment",
}  # fmt: skip


def write_report(
    frame: pd.DataFrame,
    path: Path,
    *,
    against: Sequence[Comparison] | None = None,
    gains: Sequence[str] = (),
    regrets: Sequence[str] = (),
) -> None:
    """Write the report of ``frame``, with lines about what models gain and about rows that lose at smaller M.

    Raises:
        InputError: No plotly, no trials, or a file that cannot be written.
    """
    if find_spec("plotly") is None:
        raise InputError("the report needs plotly; pip install '.[report]'")
    if not len(frame):
        raise InputError("the results hold no trial; run `sweep` first")
    write_atomically(path, render(frame, against, gains, regrets).encode())


def render(
    frame: pd.DataFrame, against: Sequence[Comparison] | None, gains: Sequence[str], regrets: Sequence[str]
) -> str:
    """Text of the report."""
    from plotly.offline import get_plotlyjs  # an extra, see write_report

    best = winners(frame)
    parts = all_of(frame, best, against, regrets)
    devices = ", ".join(sorted({str(device) for device, _ in shapes_of(frame)}))
    shapes = counted(len(shapes_of(frame)), "shape")
    values = {
        "title": f"MXFP4 GEMM search on {escape(devices)}",
        "subtitle": f"{counted(len(frame), 'trial')} of {shapes}; {escape(_dates(frame))}",
        "gain": "<br>".join(map(escape, gains)),
        "links": "".join(f'<a href="#{name}">{SECTIONS[name]}</a>' for name in parts.html),
        "body": "".join(map(_section, parts.html, parts.html.values())),
        "data": _json({"fixed": parts.fixed, "shapes": parts.shapes}),
        "plotly": get_plotlyjs(),
    }  # fmt: skip
    text = TEMPLATE.read_text(encoding="utf-8")
    for name, value in values.items():
        text = text.replace("{{" + name + "}}", value)
    return text


def _section(name: str, content: str) -> str:
    return f'<section id="{name}"><h2>{SECTIONS[name]}</h2>{content}</section>'


def _dates(frame: pd.DataFrame) -> str:
    days = sorted(str(started)[:10] for started in frame["started"].dropna() if started)
    return " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "without dates"


def _json(values: object) -> str:
    """JSON that cannot end its script element."""
    return json.dumps(values, default=_plain).replace("</", "<\\/")


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else str(value)
