"""Spikes of a loss: where it jumps out of what was usual."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamgauge.rules.outcome import curve_of
from streamgauge.vocabulary import Readings

WINDOW = 32
EARLIEST = 12
"""Losses before the first that can be called a spike."""


@dataclass(frozen=True)
class Spike:
    """A loss at `step` that is `height` nats over the usual, the median before it; `length` steps until it is back."""

    step: int
    usual: float
    height: float
    length: int
    recovered: bool


def spikes(loss: Readings, sigmas: float = 7.0, least: float = 0.3) -> list[Spike]:
    """All spikes: v > median + max(sigmas 1.4826 MAD, least), over the `WINDOW` losses before, outside of spikes.

    It is over when the loss is back within a third of its height; the next can begin once a loss was usual again.
    Losses that are not finite are left out.
    """
    curve = curve_of(loss)
    keep = np.isfinite(curve)
    curve, steps = curve[keep], loss.steps[keep]
    found: list[Spike] = []
    calm: list[float] = []
    armed, i = True, 0
    while i < len(curve):
        past = np.asarray(calm[-WINDOW:])
        usual = float(np.median(past)) if len(past) else float(curve[i])
        spread = 1.4826 * float(np.median(np.abs(past - usual))) if len(past) else 0.0
        out = curve[i] > usual + max(sigmas * spread, least)
        if out and armed and len(past) >= EARLIEST:
            end, top = i, float(curve[i])
            while end < len(curve) and curve[end] > usual + (top - usual) / 3:
                top = max(top, float(curve[end]))
                end += 1
            found.append(Spike(int(steps[i]), usual, top - usual, end - i, end < len(curve)))
            armed, i = False, end
            continue
        armed = armed or not out
        calm.append(float(curve[i]))
        i += 1
    return found
