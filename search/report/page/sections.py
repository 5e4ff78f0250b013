"""Sections of the report as HTML, and the charts that belong to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import pandas as pd

from kernels.families.defaults import default_choice
from search.report.closing import Summary, compact, outcome_counts, percent, summarize, winner_cells
from search.report.comparison import HEADER, NUMBERS, cells
from search.report.page import figures
from search.results.against import Comparison, total_line
from search.results.columns import cost_us, rows_of
from search.results.comparisons import untuned_factor
from search.results.winners import Winner, config_of, slowdowns

TIES = 20  # rows of a table of equals
TIE = 0.005  # part of the winner's time inside which a trial is listed beside it
FAILURES = 200  # lines of the table of failures
FACTOR = r"\d+\.\d+ times"  # in a reason, another in nearly every trial
FACTS = (
    "protocol", "model", "triton", "torch", "rocm_or_cuda", "device_name", "driver", "source_hash", "gpu_notes",
)  # fmt: skip


@dataclass(frozen=True)
class Parts:
    """The report in pieces.

    Args:
        html: Sections by name.
        fixed: Charts that are always shown, by the id of their place.
        shapes: Charts and ties of each shape, by part.
    """

    html: Mapping[str, str]
    fixed: Mapping[str, figures.Figure]
    shapes: Mapping[str, Mapping[str, figures.Figure | str | None]]


def all_of(
    frame: pd.DataFrame, best: Sequence[Winner], against: Sequence[Comparison] | None, regrets: Sequence[str]
) -> Parts:
    """Everything that the report shows."""
    summaries = summarize(frame, best)
    ladders = _ladders(frame, best)
    html = {
        "winners": _winners(summaries),
        "shapes": _shapes(summaries),
        **({"against": _against(against)} if against is not None else {}),
        "roofline": '<div class="chart" id="roofline-chart"></div>',
        "ladders": _places(ladders) if ladders else "<p>No (N, K) has winners at several M.</p>",
        "regret": _regret(regrets),
        "failures": _failures(frame),
        "environment": _environment(frame),
    }  # fmt: skip
    fixed = {"roofline-chart": figures.roofline(best), **ladders}
    return Parts(html, fixed, {_name(s): _search(frame, s) for s in summaries})


def _places(charts: Iterable[str]) -> str:
    return '<div class="charts">' + "".join(f'<div class="chart" id="{name}"></div>' for name in charts) + "</div>"


def _name(summary: Summary) -> str:
    return f"{summary.device} {summary.shape}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = (), attributes: str = "") -> str:
    """HTML table; cells are escaped, columns in ``right`` are numbers."""
    numbers = [' class="n"' if name in right else "" for name in header]
    head = "".join(f"<th{n}>{escape(name)}</th>" for name, n in zip(header, numbers, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{n}>{escape(cell)}</td>" for cell, n in zip(row, numbers, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table{attributes}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _winners(summaries: Sequence[Summary]) -> str:
    boxes = "".join(
        f'<label><input type="checkbox" name="family" value="{escape(name)}" checked> {escape(name)}</label>'
        for name in sorted({summary.winner.family for summary in summaries if summary.winner})
    )
    header = ("shape", "family", "configuration", "us", "evidence", "roofline", "margin", "outcomes")
    text = table(header, map(_winner_cells, summaries), ("us", "roofline", "margin"), ' id="winners"')
    several = len({summary.device for summary in summaries}) > 1
    for summary in summaries:  # what a filter and a click read
        family = summary.winner.family if summary.winner else ""
        name = _name(summary) if several else str(summary.shape)
        mark = f'<tr data-shape="{escape(_name(summary))}" data-family="{escape(family)}"><td>{escape(name)}</td>'
        text = text.replace(f"<tr><td>{summary.shape}</td>", mark, 1)
    return (
        '<div class="filters"><input type="search" id="find" placeholder="filter: 2112, fused, warps 4 …" '
        f'aria-label="filter winners">{boxes}<span class="dim" id="count"></span></div>{text}'
    )


def _winner_cells(summary: Summary) -> tuple[str, ...]:
    family, config, time_us, *rest = winner_cells(summary)
    evidence = "" if summary.winner is None else summary.winner.evidence
    return str(summary.shape), family, config, time_us, evidence, *rest, outcome_counts(summary)


def _shapes(summaries: Sequence[Summary]) -> str:
    options = "".join(f"<option>{escape(_name(summary))}</option>" for summary in summaries)
    charts = "".join(
        f'<div class="chart{" full" if part == "knobs" else ""}" id="search-{part}"></div>'
        for part in ("history", "families", "knobs", "importance")
    )
    return (
        f'<div class="filters"><select id="shape" aria-label="shape">{options}</select></div>'
        f'<div class="charts">{charts}<div id="ties"></div></div>'
    )


def _search(frame: pd.DataFrame, summary: Summary) -> dict[str, figures.Figure | str | None]:
    rows = rows_of(frame, summary.device, summary.shape).sort_values(["started", "trial"], kind="stable")
    family = summary.winner.family if summary.winner else ""
    return {
        "history": figures.history(rows, summary.winner),
        "families": figures.families(rows),
        "knobs": figures.knobs(rows, family),
        "importance": figures.importance(rows, family),
        "ties": _ties(rows, summary.winner),
    }


def _ties(rows: pd.DataFrame, winner: Winner | None) -> str:
    if winner is None:
        return "<p>No winner.</p>"
    costs = cost_us(rows).astype(float)
    same = (rows["outcome"] == "ok").fillna(False) & (rows["evidence"] == winner.evidence).fillna(False)
    close = (same & (costs <= winner.cost_us * (1 + TIE))) | rows.index.isin(winner.equals)
    near = rows[close].assign(us=costs).sort_values("us")
    cells = [(str(row["family"]), compact(config_of(row)), f"{row['us']:.4f}") for _, row in near.head(TIES).iterrows()]
    heading = f"<p>{len(near)} as good as the winner, or within {percent(TIE)} of it" + (
        f", {TIES} shown</p>" if len(near) > TIES else "</p>"
    )
    return heading + table(("family", "configuration", "us"), cells, ("us",))


def _ladders(frame: pd.DataFrame, best: Sequence[Winner]) -> dict[str, figures.Figure]:
    """A chart for each (device, N, K, evidence) with several M."""
    default_us = _default_us(frame, best)
    groups: dict[tuple[Any, ...], list[Winner]] = {}
    for winner in best:
        groups.setdefault((winner.device, winner.shape.N, winner.shape.K, winner.evidence), []).append(winner)
    several = [members for members in groups.values() if len(members) > 1]
    return {f"ladder-{i}": figures.ladder(members, default_us) for i, members in enumerate(several)}


def _default_us(frame: pd.DataFrame, best: Sequence[Winner]) -> dict[Any, float]:
    """Time of the untuned default by the winner's row, where it is known and can be compared."""
    known = slowdowns(frame, lambda device, shape: (default_choice(shape, device),))
    factors = {w.row: untuned_factor(frame, w, known.get((w.device, w.shape), {})) for w in best}
    return {w.row: w.cost_us * factor for w in best if (factor := factors[w.row]) is not None}


def _against(comparisons: Sequence[Comparison]) -> str:
    text = table(HEADER, ((str(one.ours.shape), *cells(one)) for one in comparisons), NUMBERS)
    for word in ("faster", "slower"):
        text = text.replace(f"<td>{word}</td>", f'<td class="{word}">{word}</td>')
    return f"<p>{escape(total_line(comparisons))}</p>{text}"


def _regret(lines: Sequence[str]) -> str:
    if not lines:
        return "<p>No winner is known to lose more than 1 % at a smaller M that it would serve.</p>"
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def _failures(frame: pd.DataFrame) -> str:
    bad = frame[(frame["outcome"] != "ok").fillna(True)]
    if not len(bad):
        return "<p>Nothing failed.</p>"
    reasons = bad["reason"].fillna("").str.replace(FACTOR, "… times", regex=True)
    counts = bad.assign(reason=reasons).groupby(["outcome", "family", "reason"]).size().sort_values(ascending=False)
    entries: Any = counts.head(FAILURES).items()
    return table(("outcome", "family", "why", "trials"), [(*key, str(n)) for key, n in entries], ("trials",))


def _environment(frame: pd.DataFrame) -> str:
    rows = []
    for name in FACTS:
        values = sorted(map(str, frame[name].dropna().unique()))
        if values:
            rows.append((name, ", ".join(values)))
    return table(("what", "values"), rows)
