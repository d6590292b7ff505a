"""Profiles over depth: a signal against the place in the stack, at the first and at the last step."""

from __future__ import annotations

import numpy as np

from streamgauge.reporting.model import Report
from streamgauge.reporting.plots.lines import arm_label, axis, colour, curve, ends, numbers
from streamgauge.reporting.plots.registry import Figure, Panel, signal_plot
from streamgauge.reporting.signals import view
from streamgauge.reporting.summary import measured
from streamgauge.vocabulary import Readings


@signal_plot("depth-profile", "over depth")
def depth_profile(report: Report, signal: str) -> Panel | None:
    """Every arm's values over the sublayers: thin and dotted at the first step, solid at the last finite one.

    Arms of different depth are laid over one another by relative depth.
    """
    shape, traces = view(signal), []
    unit, spans = "1", [] if shape.neutral is None else [shape.neutral]
    depths = {_depth(arm.readings[signal]) for arm in report.arms if signal in arm.readings}
    relative = len(depths) > 1
    for index, arm in enumerate(report.arms):
        readings = arm.readings.get(signal)
        if readings is None or not readings.values.size:
            continue
        readings = measured(readings)
        unit = readings.unit
        usable = readings.values > 0 if shape.scale == "log" else np.isfinite(readings.values)
        rows = np.flatnonzero((usable & np.isfinite(readings.values)).any(axis=1))
        if not len(rows):
            continue
        at = [place.index / _depth(readings) if relative else place.index for place in readings.places]
        names = [arm_label(str(place)) for place in readings.places]
        for row, style, width in ((rows[0], "dot", 1.3), (rows[-1], "solid", 2.2)):
            values = np.where(usable[row], readings.values[row], np.nan)
            step = int(readings.steps[row])
            spans += ends(values)
            line = {"color": colour(index), "dash": style, "width": width}
            hover = f"{arm_label(arm.name)}, step {step}<br>%{{text}}<br>%{{y:.4g}}<extra></extra>"
            traces.append({**curve(numbers(at, 4), numbers(values, 4), line, hover), "text": names})
            if row == rows[-1] == rows[0]:
                break
    if not traces:
        return None
    layout = {
        "xaxis": axis(
            "depth, 0 input to 1 output" if relative else "sublayer, input to output", [], rangemode="tozero"
        ),
        "yaxis": axis("" if unit in ("", "1") else unit, spans, shape.scale),
        "showlegend": False,
        "hovermode": "closest",
    }
    if shape.neutral is not None:
        layout["shapes"] = [
            {
                "type": "line",
                "xref": "paper",
                "x0": 0,
                "x1": 1,
                "y0": shape.neutral,
                "y1": shape.neutral,
                "line": {"color": "var(--ink-2)", "width": 1, "dash": "dash"},
            }
        ]
    figure = Figure("", "Over depth: dotted first step, solid last", data=tuple(traces), layout=layout, height=380)
    return Panel((figure,))


def _depth(readings: Readings) -> int:
    return max((place.index for place in readings.places), default=0) or 1
