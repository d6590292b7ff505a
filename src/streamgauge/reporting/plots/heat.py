"""Layer by step: one heat map per signal and arm, on one colour scale for all arms."""

from __future__ import annotations

import base64
import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamgauge.reporting.decimate import Bools, Floats, block_means, starts
from streamgauge.reporting.model import Report
from streamgauge.reporting.numbers import shown
from streamgauge.reporting.plots.registry import ColourKey, Figure, Panel, signal_plot
from streamgauge.reporting.signals import View, view
from streamgauge.reporting.summary import measured
from streamgauge.vocabulary import Readings

COLUMNS, ROWS = 400, 250
CELLS = 1_000_000  # in one report; a cell takes 2.7 bytes
SAMPLED = 200_000  # values that the ends of a diverging scale are estimated from
DECADES = 10.0  # a log scale shows at most this many, down from its upper end
BROKEN, NOTHING = 65_534, 65_533  # codes of cells that have no logarithm or no number
TOP = 65_000
FARTHEST = 1e150  # a linear scale ends here, so that differences and sums stay finite


@dataclass(frozen=True)
class Span:
    """The ends of a colour scale, in log10 of the value where `log`; `cut` says that values lie beyond them."""

    low: float
    high: float
    log: bool
    cut: tuple[bool, bool] = (False, False)


@signal_plot("layer-by-step", "by layer and step")
def layer_by_step(report: Report, signal: str) -> Panel | None:
    """A heat map per arm: steps from left to right, sublayers from the input (bottom) to the output (top)."""
    found = [(index, arm, arm.readings[signal]) for index, arm in enumerate(report.arms) if signal in arm.readings]
    found = [(index, arm, measured(readings)) for index, arm, readings in found if readings.values.size]
    if not found:
        return None
    shape, scaled = view(signal), [_scaled(readings, view(signal)) for _, _, readings in found]
    span = _span(shape, [values for values, _ in scaled])
    maps = sum(r.places[0].index >= 0 for arm in report.arms for r in arm.readings.values() if r.places)
    budget = CELLS // max(maps, 1)
    figures, broken = [], False
    height = 330 if len(found) <= 2 else 180
    for (index, arm, readings), (values, nothing) in zip(found, scaled, strict=True):
        lost = ~np.isfinite(readings.values)
        broken = broken or bool(lost.any())
        heat = codes(readings, values, nothing, lost, span, budget)
        text = f"{arm.name}: {_sentence(readings, lost)}"
        figures.append(Figure(text, arm.name, index, heat={**heat, "scale": _palette(shape)}, height=height))
    return Panel(tuple(figures), key=_key(shape, span, found[0][2].unit, broken))


def codes(readings: Readings, values: Floats, nothing: Bools, broken: Bools, span: Span, cells: int) -> dict[str, Any]:
    """A heat map as 16-bit codes [places, steps], block-averaged to at most `cells` of them.

    value = low + code / 65000 (high - low), then 10^value where log; the codes above 65000 mean zero and not finite.
    `values` is scaled (log10 for a log signal), [steps, places].
    """
    rows, columns = _shape(len(readings.places), len(readings.steps), cells)
    blocks = block_means(values.T, broken.T, rows, columns)
    finite = blocks.mean[np.isfinite(blocks.mean)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    width = (high - low) or 1.0
    table = np.full(blocks.mean.shape, BROKEN, dtype="<u2")
    if nothing.any():
        table[block_means(np.where(nothing, 1.0, np.nan).T, broken.T, rows, columns).mean > 0] = NOTHING
    known = np.isfinite(blocks.mean)
    table[known] = np.rint((blocks.mean[known] - low) / width * TOP)
    table[blocks.broken] = BROKEN
    cuts = starts(len(readings.steps), columns)
    return {
        "codes": base64.b64encode(table.tobytes()).decode(),
        "steps": [int(step) for step in readings.steps[cuts]],
        "until": [int(step) for step in readings.steps[np.append(cuts[1:], len(readings.steps)) - 1]],
        "places": [str(readings.places[i]) for i in starts(len(readings.places), rows)],
        "at": [readings.places[i].index for i in starts(len(readings.places), rows)],
        "low": low,
        "width": width,
        "log": span.log,
        "zmin": span.low,
        "zmax": span.high,
        "unit": "" if readings.unit == "1" else readings.unit,
    }


def _shape(places: int, steps: int, cells: int) -> tuple[int, int]:
    rows, columns = min(places, ROWS), min(steps, COLUMNS)
    excess = rows * columns / max(cells, 1)
    if excess > 1:
        columns = max(int(columns / excess), min(columns, 60))
        rows = max(min(rows, cells // columns), 1)
    return rows, columns


def _scaled(readings: Readings, shape: View) -> tuple[Floats, Bools]:
    values = readings.values
    if shape.scale != "log":
        drawn = np.where(np.isfinite(values), np.clip(values, -FARTHEST, FARTHEST), values)
        return drawn, np.zeros(values.shape, dtype=bool)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log10(np.where(values > 0, values, np.nan)), np.asarray(values <= 0)


def _span(shape: View, tables: Iterable[Floats]) -> Span:
    finite = np.concatenate([table[np.isfinite(table)] for table in tables])
    log = shape.scale == "log"
    if not finite.size:
        return Span(0.0, 1.0, log)
    low, high = float(finite.min()), float(finite.max())
    if shape.limits is not None:
        ends = shape.limits
    elif shape.neutral is not None:
        middle = np.log10(shape.neutral) if log else shape.neutral
        reach = max(float(np.quantile(np.abs(finite[:: 1 + finite.size // SAMPLED] - middle), 0.99)), 0.05)
        ends = (middle - reach, middle + reach)
    elif log:
        ends = (max(low, high - DECADES), high)
    else:
        ends = (low, high)
    if ends[1] - ends[0] < 1e-9:
        ends = (ends[0] - 0.5, ends[1] + 0.5)
    blur = 1e-4 * (ends[1] - ends[0])
    return Span(*ends, log, cut=(low < ends[0] - blur, high > ends[1] + blur))


def _palette(shape: View) -> str:
    return "seq" if shape.neutral is None else "div"


def _key(shape: View, span: Span, unit: str, broken: bool) -> ColourKey:
    middle = (span.low + span.high) / 2
    ticks = []
    for share, value in ((0.0, span.low), (0.5, middle), (1.0, span.high)):
        sign = "≤ " if share == 0 and span.cut[0] else "≥ " if share == 1 and span.cut[1] else ""
        unit_text = f" {unit}" if share == 1 and unit not in ("", "1") else ""
        ticks.append((share, f"{sign}{shown(_power(value) if span.log else float(value), 2)}{unit_text}"))
    return ColourKey(_palette(shape), tuple(ticks), broken)


def _power(exponent: float) -> float:
    whole = math.floor(exponent)  # 10 ** exponent itself may round beyond the largest double
    return min(float(f"{10 ** (exponent - whole):.6f}e{whole}"), sys.float_info.max)


def _sentence(readings: Readings, broken: Bools) -> str:
    parts = []
    for when, row, step in (("first", 0, readings.steps[0]), ("last", -1, readings.steps[-1])):
        finite = readings.values[row][np.isfinite(readings.values[row])]
        if finite.size:
            parts.append(
                f"at the {when} step ({step}) {shown(float(finite[0]))} at the input side, "
                f"{shown(float(finite[-1]))} at the output side"
            )
    if broken.any():
        first = int(readings.steps[np.flatnonzero(broken.any(axis=1))[0]])
        parts.append(f"not finite from step {first} on, in {int(broken.sum())} of {broken.size} entries")
    return "; ".join(parts) + "." if parts else "nothing was measured."
