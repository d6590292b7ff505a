"""What line plots share: colours of arms, axes, decimated lines, and arrays as JSON."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from streamgauge.reporting.decimate import Floats, Ints, block_means, centres, envelope, smooth
from streamgauge.reporting.model import Report
from streamgauge.reporting.numbers import shown
from streamgauge.vocabulary import Readings

COLOURS = 8
DASHES = ("solid", "dash", "dot", "dashdot")
POINTS = 400  # of a line, fewer where there are many arms
SMOOTHED = 50  # one smoothed point averages over this part of the run: 1 / 50 of its steps


def colour(arm: int) -> str:
    """The CSS variable of an arm's colour; it repeats after `COLOURS` arms, with another dash."""
    return f"var(--arm-{arm % COLOURS})"


def dash(arm: int) -> str:
    """The dash that tells arms of one colour apart."""
    return DASHES[(arm // COLOURS) % len(DASHES)]


def points(report: Report) -> int:
    """How many points a line may take: the fewer, the more arms there are."""
    return min(POINTS, max(8 * POINTS // max(len(report.arms), 1), 60))


def numbers(values: Any, digits: int = 5) -> list[float | None]:
    """Values for JSON, rounded to `digits` significant digits; None where a value is not finite."""
    found = np.asarray(values, dtype=np.float64)
    rounded = [float(f"{v:.{digits}g}") if np.isfinite(v) else None for v in found]
    # the largest doubles round up to infinity
    return [float(v) if r is not None and math.isinf(r) else r for v, r in zip(found, rounded, strict=True)]


def axis(title: str, spans: list[float], scale: str = "linear", **more: Any) -> dict[str, Any]:
    """A plotly axis with its title; `spans` are values that it covers, of which a log axis picks its ticks."""
    ticks: dict[str, Any] = {"type": "log", **log_ticks(spans)} if scale == "log" else {}
    return {"title": {"text": title}, **ticks, **more}


def log_ticks(spans: list[float]) -> dict[str, Any]:
    """Whole decades, at most about six of them; within less than two decades 1, 2 and 5 of each.

    Within a factor of 2 there are too few of those, and plotly's own ticks stand.
    """
    positive = [value for value in spans if value > 0]
    if not positive or max(positive) <= 2 * min(positive):
        return {}
    low, high = math.floor(math.log10(min(positive))), math.ceil(math.log10(max(positive)))
    decades = math.log10(max(positive)) - math.log10(min(positive))
    if decades < 2:
        values = [float(f"{m}e{d}") for d in range(low, high + 1) for m in (1, 2, 5)]
    else:
        values = [float(f"1e{d}") for d in range(low, high + 1, max(1, round(decades / 6)))]
    values = [value for value in values if 0 < value < math.inf]  # 1e-324 and 1e309 are no doubles
    return {"tickvals": values, "ticktext": [shown(value, 1) for value in values]}


def with_unit(value: float | None, unit: str) -> str:
    """A number in words, with its unit unless it is a pure number."""
    return shown(value) if unit in ("", "1") or value is None else f"{shown(value)} {unit}"


def arm_label(name: str) -> str:
    """An arm's name where plotly would read HTML: its five special characters are written as entities."""
    for raw, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&#39;")):
        name = name.replace(raw, entity)
    return name.replace("%{", "% {")


def ends(values: Floats) -> list[float]:
    """The smallest and the largest finite value; empty when there is none."""
    finite = values[np.isfinite(values)]
    return [float(finite.min()), float(finite.max())] if finite.size else []


def column(readings: Readings) -> Floats:
    """The values of a signal of the whole run, [steps]."""
    return np.asarray(readings.values[:, 0], dtype=np.float64)


def curve(x: list[float | None], y: list[float | None], line: dict[str, Any], hover: str) -> dict[str, Any]:
    """One plotly line; a single point is drawn as a marker."""
    return {
        "type": "scatter",
        "mode": "lines" if len(x) > 1 else "markers",
        "x": x,
        "y": y,
        "line": line,
        "marker": {"color": line["color"]},
        "hovertemplate": hover,
    }


def band(steps: Ints, values: Floats, arm: int, most: int) -> dict[str, Any]:
    """The envelope of a long series as a filled area of at most `most` blocks."""
    at, low, high = envelope(steps, values, most)
    return {
        "type": "scatter",
        "mode": "lines",
        "x": numbers(np.concatenate([at, at[::-1]]), 9),
        "y": numbers(np.concatenate([high, low[::-1]])),
        "fill": "toself",
        "fillcolor": f"var(--band-{arm % COLOURS})",
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
        "legendgroup": str(arm),
    }


def average(steps: Ints, values: Floats, line: dict[str, Any], hover: str, most: int) -> dict[str, Any]:
    """The moving average of a series that is block-averaged to at most `most` points first."""
    means = block_means(values[None], ~np.isfinite(values[None]), 1, most).mean[0]
    mean = smooth(means, len(means) // SMOOTHED)
    return {**curve(numbers(centres(steps, most), 9), numbers(mean), line, hover), "connectgaps": False}
