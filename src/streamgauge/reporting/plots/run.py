"""What was recorded once per step besides the loss: gradient norm, retention, learning rate, speed."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamgauge.reporting.decimate import Floats, envelope
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
    numbers,
    points,
    with_unit,
)
from streamgauge.reporting.plots.registry import Figure, Panel, plot
from streamgauge.reporting.signals import RUN_VIEWS, View
from streamgauge.vocabulary import Readings


@plot("run-curves", "The run")
def run_curves(report: Report) -> Panel | None:
    """Gradient norm, gradient retention, learning rate and speed of every arm, each in a small figure."""
    drawn = (_figure(report, signal, view) for signal, view in RUN_VIEWS.items())
    figures = tuple(figure for figure in drawn if figure is not None)
    return Panel(figures) if figures else None


def _figure(report: Report, signal: str, view: View) -> Figure | None:
    traces: list[dict[str, Any]] = []
    finals, spans, unit = [], [], "1"
    for index, arm in enumerate(report.arms):
        readings = arm.readings.get(signal)
        if readings is None or not readings.values.size:
            continue
        values = column(readings)
        if view.scale == "log":
            values = np.where(values > 0, values, np.nan)
        if not np.isfinite(values).any():
            continue
        unit = readings.unit
        spans += ends(values)
        traces += _traces(arm, index, readings, values, view, points(report))
        finals.append(f"{arm.name} {with_unit(float(values[np.isfinite(values)][-1]), unit)}")
    if not traces:
        return None
    layout = {
        "xaxis": axis("step", [], rangemode="tozero"),
        "yaxis": axis("", spans, view.scale),
        "showlegend": False,
        "hovermode": "closest",
    }
    title = view.title if unit in ("", "1") else f"{view.title} ({unit})"
    text = f"{view.title}, {view.meaning[0].lower()}{view.meaning[1:]} At the end: {', '.join(finals)}."
    return Figure(text, title, data=tuple(traces), layout=layout, height=220)


def _traces(arm: Arm, index: int, readings: Readings, values: Floats, view: View, most: int) -> list[dict[str, Any]]:
    line = {"color": colour(index), "dash": dash(index), "width": 1.6}
    hover = f"{arm_label(arm.name)}<br>step %{{x}}: %{{y:.4g}}<extra></extra>"
    if view.noisy:
        return [band(readings.steps, values, index, most // 4), average(readings.steps, values, line, hover, most)]
    steps, low, high = envelope(readings.steps, values, most)
    middle = np.sqrt(low) * np.sqrt(high) if view.scale == "log" else low / 2 + high / 2
    return [curve(numbers(steps, 9), numbers(middle), line, hover)]
