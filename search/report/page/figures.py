"""Charts of the report, as plotly.js reads them: traces and layout."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import optuna
import pandas as pd
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import create_trial

from kernels.families import FAMILIES
from search.report.closing import compact
from search.results.columns import CONFIG, cost_us
from search.results.winners import Winner, config_of

Trace = dict[str, Any]
Figure = dict[str, Any]
# Okabe and Ito's colours, which people who see fewer colours tell apart, and three greys behind them.
PALETTE = ("#0072B2", "#56B4E9", "#009E73", "#D55E00", "#CC79A7", "#E69F00", "#B8A800", "#555555", "#999999", "#BBBBBB")
COLOURS: Mapping[str, str] = {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(FAMILIES)}
OTHER = "#888888"
DECADE = 10.0  # below this ratio of the largest value to the least, an axis has more numbers
LEAST_WIDTH = 3.0  # of a logarithmic axis, so that it has several numbers
NARROW = 4.0  # below it an axis of times is linear
LEAST_TRIALS = 16  # fewer say nothing about a knob
CLEAR = "rgba(0,0,0,0)"
LAYOUT: Mapping[str, Any] = {
    "font": {"family": "system-ui, sans-serif", "size": 12}, "paper_bgcolor": CLEAR, "plot_bgcolor": CLEAR,
    "hoverlabel": {"align": "left"}, "modebar": {"bgcolor": CLEAR},
    "legend": {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"},
}  # fmt: skip
AXIS: Mapping[str, Any] = {"gridcolor": "rgba(128,128,128,.25)", "zeroline": False, "automargin": True}


def history(rows: pd.DataFrame, winner: Winner | None) -> Figure:
    """Time of each trial in the order of the search, the best so far, failures on top, the winner named."""
    costs = cost_us(rows).astype(float)
    numbers = pd.Series(range(1, len(rows) + 1), index=rows.index)
    ok = _timed(rows, costs)
    traces = [
        _points(numbers[mine], costs[mine], family, _words(rows[mine]))
        for family in sorted(rows["family"][ok].unique()) for mine in [ok & (rows["family"] == family)]
    ]  # fmt: skip
    traces += _failures(rows, numbers, costs, ok)
    traces.append({
        "x": numbers[ok].tolist(), "y": costs[ok].cummin().tolist(), "mode": "lines", "name": "best so far",
        "line": {"shape": "hv", "color": "#444"}, "hoverinfo": "skip",
    })  # fmt: skip
    if winner is not None and winner.row in rows.index:
        traces.append(_named(int(numbers[winner.row]), winner, len(rows)))
    axes = {"xaxis": _axis("trials in order"), "yaxis": _time_axis(costs[ok], _axis_title(rows))}
    return _figure("search", traces, axes)


def _timed(rows: pd.DataFrame, costs: pd.Series[float]) -> pd.Series[bool]:
    return (rows["outcome"] == "ok").fillna(False).astype(bool) & costs.notna()


def _points(x: pd.Series[Any], y: pd.Series[float], family: str, words: Sequence[str]) -> Trace:
    return {
        "x": x.tolist(), "y": y.tolist(), "mode": "markers", "name": family, "text": list(words),
        "marker": {"color": COLOURS.get(family, OTHER), "size": 6}, "hovertemplate": "%{y:.4g} us<br>%{text}",
    }  # fmt: skip


def _failures(rows: pd.DataFrame, numbers: pd.Series[int], costs: pd.Series[float], ok: pd.Series[bool]) -> list[Trace]:
    if ok.all():
        return []
    top_us = float(costs[ok].max()) if ok.any() else 1.0
    return [{
        "x": numbers[~ok].tolist(), "y": [top_us] * int((~ok).sum()), "mode": "markers", "name": "failed or stopped",
        "marker": {"symbol": "x-thin", "size": 6, "line": {"width": 1, "color": OTHER}},
        "text": rows["outcome"][~ok].astype(str).tolist(), "hovertemplate": "%{text}",
    }]  # fmt: skip


def _named(number: int, winner: Winner, trials: int) -> Trace:
    side = "right" if number <= trials / 2 else "left"
    colour = COLOURS.get(winner.family, OTHER)
    return {
        "x": [number], "y": [winner.cost_us], "mode": "markers+text", "showlegend": False,
        "marker": {"symbol": "star", "size": 13, "color": colour, "line": {"width": 1, "color": "#000"}},
        "text": [f"{winner.cost_us:.4g} us"], "textposition": f"top {side}", "hovertext": compact(winner.config),
    }  # fmt: skip


def families(rows: pd.DataFrame) -> Figure:
    """Times by family, with how many trials stand behind each box."""
    costs = cost_us(rows).astype(float)
    ok = _timed(rows, costs)
    traces = []
    for family in sorted(rows["family"][ok].unique()):
        times = costs[ok & (rows["family"] == family)].tolist()
        marker = {"color": COLOURS.get(family, OTHER)}
        traces.append({"type": "box", "y": times, "name": f"{family} ({len(times)})", "marker": marker})
    axes = {"xaxis": _axis(""), "yaxis": _time_axis(costs[ok], _axis_title(rows))}
    return _figure("families (trials with a time)", traces, {**axes, "showlegend": False})


def knobs(rows: pd.DataFrame, family: str) -> Figure | None:
    """Parallel coordinates of the knobs of ``family`` that vary, coloured by time; None where none does."""
    costs = cost_us(rows).astype(float)
    mine = _timed(rows, costs) & (rows["family"] == family)
    varying = [name for name in CONFIG if rows[name][mine].nunique() > 1]
    if not varying:
        return None
    times = costs[mine].tolist()
    dimensions = [_dimension(name, rows[name][mine]) for name in varying]
    line = {"color": times, "colorscale": "Viridis", "reversescale": True, "showscale": True}
    trace = {"type": "parcoords", "line": line, "dimensions": [*dimensions, {"label": "us", "values": times}]}
    return _figure(f"knobs of {family}", [trace], {"margin": {"l": 60, "r": 20, "t": 84, "b": 30}})


def _dimension(name: str, values: pd.Series[Any]) -> dict[str, Any]:
    """An axis whose ticks are the values that occur, evenly spaced."""
    known = sorted(values.dropna().unique())
    codes = {value: code for code, value in enumerate(known)}
    return {
        "label": name, "values": [codes.get(value, 0) for value in values], "tickvals": list(codes.values()),
        "ticktext": [str(value) or "none" for value in known],
    }  # fmt: skip


def importance(rows: pd.DataFrame, family: str) -> Figure | None:
    """Which knobs of ``family`` decide about the time, by Optuna; None where too few trials tell."""
    parts = _importances(rows[_timed(rows, cost_us(rows).astype(float)) & (rows["family"] == family)])
    if not parts:
        return None
    names = sorted(parts, key=lambda name: parts[name])
    colour = {"color": COLOURS.get(family, OTHER)}
    bars = {"type": "bar", "orientation": "h", "x": [parts[name] for name in names], "y": names, "marker": colour}
    return _figure(f"what matters in {family}", [bars], {"xaxis": _axis("importance (PED-ANOVA)"), "yaxis": _axis("")})


def _importances(rows: pd.DataFrame) -> dict[str, float]:
    """Share of each knob that varies, by PED-ANOVA; empty where too few trials or knobs vary."""
    varying = [name for name in CONFIG if rows[name].nunique() > 1]
    times = rows["time_us"].fillna(rows["predicted_us"])
    if len(rows) < LEAST_TRIALS or not varying or times.nunique() < 2:
        return {}
    spaces = {name: _space(rows[name]) for name in varying}
    study = optuna.create_study()
    for time_us, (_, row) in zip(times, rows.iterrows(), strict=True):
        params = {name: row[name] if isinstance(row[name], str) else int(row[name]) for name in varying}
        study.add_trial(create_trial(params=params, distributions=spaces, value=float(time_us)))
    parts = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
    return {name: part for name, part in parts.items() if math.isfinite(part)}


def _space(values: pd.Series[Any]) -> BaseDistribution:
    """The values that occur, each as far from the next as any other."""
    known = sorted(values.dropna().unique())
    return CategoricalDistribution([value if isinstance(value, str) else int(value) for value in known])


def roofline(best: Sequence[Winner]) -> Figure:
    """TFLOP/s of all winners by their arithmetic intensity, under what the device allows."""
    points = [winner for winner in best if winner.roofline_fraction]
    intensity = {winner.row: winner.shape.flops / winner.shape.unique_bytes for winner in points}
    rate = {winner.row: winner.shape.flops / winner.cost_us * 1e-6 for winner in points}
    roof = sorted((intensity[w.row], rate[w.row] / (w.roofline_fraction or 1.0)) for w in points)
    traces: list[Trace] = [{
        "x": [x for x, _ in roof], "y": [y for _, y in roof], "mode": "lines+markers", "name": "roofline",
        "line": {"color": OTHER}, "marker": {"symbol": "line-ew", "size": 12, "line": {"width": 2, "color": OTHER}},
    }]  # fmt: skip
    for family in sorted({winner.family for winner in points}):
        mine = [winner for winner in points if winner.family == family]
        traces.append({
            "x": [intensity[w.row] for w in mine], "y": [rate[w.row] for w in mine], "mode": "markers", "name": family,
            "marker": {"color": COLOURS.get(family, OTHER), "size": 9},
            "text": [f"{w.shape}: {w.cost_us:.4g} us {w.evidence}<br>{compact(w.config)}" for w in mine],
            "hovertemplate": "%{text}<br>%{y:.4g} TFLOP/s",
        })  # fmt: skip
    xaxis = {**_axis("FLOP a byte"), **_logarithmic(intensity.values())}
    yaxis = {**_axis("TFLOP/s"), **_logarithmic([*rate.values(), *(y for _, y in roof)])}
    return _figure("winners under the roofline", traces, {"xaxis": xaxis, "yaxis": yaxis})


def ladder(best: Sequence[Winner], default_us: Mapping[Any, float]) -> Figure:
    """Time by M of the winners of one (N, K), and of the default where it was tried.

    Args:
        best: Winners of one device and one (N, K).
        default_us: Time of the untuned default by the winner's row.
    """
    lines = {"winner": {w.shape.M: w.cost_us for w in best},
             "untuned default": {w.shape.M: default_us[w.row] for w in best if w.row in default_us}}  # fmt: skip
    traces = [
        {"x": sorted(values), "y": [values[M] for M in sorted(values)], "mode": "lines+markers", "name": name}
        for name, values in lines.items()
    ]
    Ms = sorted(w.shape.M for w in best)
    xaxis = {**_axis("M"), "type": "log", "tickvals": Ms, "ticktext": list(map(str, Ms))}
    times = [time for values in lines.values() for time in values.values()]
    yaxis = {**_axis(f"{best[0].evidence} us"), **_logarithmic(times)}
    return _figure(f"N = {best[0].shape.N}, K = {best[0].shape.K}", traces, {"xaxis": xaxis, "yaxis": yaxis})


def _words(rows: pd.DataFrame) -> list[str]:
    return [compact(config_of(row)) for _, row in rows.iterrows()]


def _axis_title(rows: pd.DataFrame) -> str:
    kinds = [str(kind) for kind in rows["evidence"].dropna().unique()]
    return f"{' or '.join(sorted(kinds)) or 'no'} time, us"


def _axis(title: str) -> dict[str, Any]:
    return {**AXIS, "title": {"text": title}}


def _time_axis(costs: pd.Series[float], title: str) -> dict[str, Any]:
    """Linear where the times are close to each other, else logarithmic."""
    wide = len(costs) > 0 and float(costs.max()) / float(costs.min()) >= NARROW
    return {**_axis(title), **(_logarithmic(costs) if wide else {})}


def _logarithmic(values: Iterable[float]) -> dict[str, Any]:
    """A logarithmic axis with numbers at 1, 2 and 5 of each decade; at more of them where there are few decades."""
    known = [value for value in values if value > 0] or [1.0]
    ratio = max(known) / min(known)
    edge = max(1.1, ratio**0.04, math.sqrt(LEAST_WIDTH / ratio))  # room for the marks of the first and last
    low, high = min(known) / edge, max(known) * edge
    digits = (1, 1.5, 2, 3, 4, 5, 6, 8) if high / low < DECADE else (1, 2, 5)
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [digit * 10.0**exponent for exponent in exponents for digit in digits]
    shown = [tick for tick in ticks if low <= tick <= high]
    limits = [math.log10(low), math.log10(high)]
    return {"type": "log", "tickvals": shown, "ticktext": [f"{tick:g}" for tick in shown], "range": limits}


def _figure(title: str, traces: Sequence[Trace], layout: Mapping[str, Any]) -> Figure:
    margin = {"l": 60, "r": 20, "t": 36, "b": 48}
    heading = {"text": title, "font": {"size": 14}, "x": 0.02, "xanchor": "left"}
    whole = {**LAYOUT, "margin": margin, "title": heading, **layout}
    return {"data": list(traces), "layout": whole}
