"""The loss of every arm over the steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamgauge.reporting.decimate import starts
from streamgauge.reporting.model import Arm, Report
from streamgauge.reporting.plots.lines import (
    arm_label,
    average,
    axis,
    band,
    colour,
    column,
    curve,
    dash,
    ends,
    log_ticks,
    numbers,
    points,
    with_unit,
)
from streamgauge.reporting.plots.registry import Figure, Panel, plot
from streamgauge.reporting.summary import summarise
from streamgauge.vocabulary import Readings

WIDE = 8.0  # a loss range of this factor is drawn on a log axis


@plot("loss-curves", "Loss")
def loss_curves(report: Report) -> Panel | None:
    """Training loss (smoothed, inside its envelope) and validation loss of every arm, with the unigram entropy."""
    traces: list[dict[str, Any]] = []
    spans: list[float] = []
    entropy, end = report.data.unigram_entropy, 0
    for index, arm in enumerate(report.arms):
        train, val = (_usable(arm.readings.get(signal)) for signal in ("loss", "val_loss"))
        for readings in (train, val):
            if readings is not None:
                end = max(end, int(readings.steps[-1]))
                spans += ends(readings.values)
        traces += _training(train, arm.name, index, points(report)) if train is not None else []
        traces += [_validation(val, arm.name, index, points(report), legend=train is None)] if val is not None else []
    if not traces:
        return None
    if entropy is not None:
        traces.append(_level(entropy, end))
        spans.append(entropy)
    positive = bool(spans) and min(spans) > 0
    wide = positive and max(spans) > WIDE * min(spans)
    layout = {
        "xaxis": axis("step", [], rangemode="tozero"),
        "yaxis": axis("loss, nat per token", spans, "log" if wide else "linear"),
        "showlegend": True,
        "hovermode": "closest",
    }
    text = "; ".join(_sentence(arm, report) for arm in report.arms) + "."
    note = "Line: training loss, smoothed, in the band of its smallest and largest values. Dots: validation loss." + (
        " Cross: not finite from here on." if any("symbol" in trace.get("marker", {}) for trace in traces) else ""
    )
    log = log_ticks(spans) if positive else None
    return Panel((Figure(text, data=tuple(traces), layout=layout, height=400, log_switch=log),), note)


def _usable(readings: Readings | None) -> Readings | None:
    return readings if readings is not None and readings.values.size else None


def _training(readings: Readings, name: str, index: int, most: int) -> list[dict[str, Any]]:
    values, label, group = column(readings), arm_label(name), {"legendgroup": str(index)}
    line = {"color": colour(index), "dash": dash(index), "width": 2}
    hover = f"{label}<br>step %{{x}}: training %{{y:.4f}}<extra></extra>"
    traces = [{**average(readings.steps, values, line, hover, most), **group, "name": label}]
    if len(values) > most // 4:
        traces.insert(0, band(readings.steps, values, index, most // 4))
    broken = np.flatnonzero(~np.isfinite(values))
    if len(broken):
        before = values[: broken[0]][np.isfinite(values[: broken[0]])]
        step = int(readings.steps[broken[0]])
        hover = f"{label}<br>loss not finite from step {step} on<extra></extra>"
        cross = curve([float(step)], [float(before[-1]) if before.size else 1.0], line, hover)
        marker = {"symbol": "x", "size": 12, "color": colour(index)}
        traces.append({**cross, **group, "mode": "markers", "marker": marker, "showlegend": False})
    return traces


def _validation(readings: Readings, name: str, index: int, most: int, legend: bool) -> dict[str, Any]:
    hover = f"{arm_label(name)}<br>step %{{x}}: validation %{{y:.4f}}<extra></extra>"
    picked = np.unique(np.append(starts(len(readings), most // 4), len(readings) - 1))
    return {
        **curve(numbers(readings.steps[picked], 9), numbers(column(readings)[picked]), {"color": colour(index)}, hover),
        "mode": "markers",
        "marker": {"color": colour(index), "size": 8, "line": {"color": "var(--surface)", "width": 1.5}},
        "legendgroup": str(index),
        "name": arm_label(name),
        "showlegend": legend,
    }


def _level(entropy: float, end: int) -> dict[str, Any]:
    line = {"color": "var(--ink-2)", "dash": "dash", "width": 1.5}
    hover = f"unigram entropy {entropy:.4f} nat: what token frequencies alone can reach<extra></extra>"
    level = curve([0.0, float(max(end, 1))], [entropy, entropy], line, hover)
    return {**level, "name": f"unigram entropy {entropy:.3f}"}


def _sentence(arm: Arm, report: Report) -> str:
    found = summarise(arm, report)
    if found.val_loss is None:
        return f"{arm.name}: no validation loss was recorded"
    compared = ""
    if found.gain is not None and np.isfinite(found.gain):
        side = "below" if found.gain >= 0 else "above"
        compared = f", {with_unit(abs(found.gain), 'nat')} {side} the unigram entropy"
    return f"{arm.name}: validation loss {with_unit(found.val_loss, 'nat')}{compared}"
