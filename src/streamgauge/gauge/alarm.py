"""When a step looks wrong: a loss or gradient norm that is not finite, or jumps."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any

from streamgauge.gauge.ledger import Row
from streamgauge.gauge.signals import SIGNALS

WATCHED = ("loss", "grad_norm")


@dataclass(frozen=True)
class Alarm:
    """What tripped: the signal, its value, and what was usual."""

    step: int
    signal: str
    value: float
    usual: float
    why: str


class Alarms:
    """v > median + max(sigmas * 1.4826 * MAD, rise * |median|) over the last `window` values, or v not finite.

    The median and the median absolute deviation ignore the jumps themselves. A signal that has tripped stays quiet
    for `pause` steps, and one that is not finite until it is finite again, so that a diverged run is not measured
    at every step.
    """

    def __init__(self, window: int = 32, at_least: int = 8, sigmas: float = 6.0, pause: int = 10) -> None:
        self.at_least, self.sigmas, self.pause = at_least, sigmas, pause
        self._past: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=window))
        self._quiet_until: dict[str, float] = defaultdict(float)
        self._broken: set[str] = set()

    def check(self, step: int, signal: str, value: float) -> Alarm | None:
        """Take the next value of a signal; an Alarm if it is out of the usual."""
        if not math.isfinite(value):
            first = signal not in self._broken
            self._broken.add(signal)
            usual = median(self._past[signal]) if self._past[signal] else math.nan
            return Alarm(step, signal, value, usual, "not finite") if first else None
        self._broken.discard(signal)
        past = self._past[signal]
        tripped = None
        if len(past) >= self.at_least and step >= self._quiet_until[signal]:
            usual = median(past)
            spread = 1.4826 * median(abs(v - usual) for v in past)
            rise = 0.1 if signal == "loss" else 1.0
            if value > usual + max(self.sigmas * spread, rise * abs(usual)):
                tripped = Alarm(step, signal, value, usual, "jump")
                self._quiet_until[signal] = step + self.pause
        past.append(value)
        return tripped


def first_non_finite(rows: Iterable[Row]) -> dict[str, Any] | None:
    """Where a sampled step stops being finite: the first place the data reach, else the last (gradients run back).

    {"step", "signal", "place", "value", "flow": "forward" | "backward"}, or None when every reading is finite.
    """
    broken = [row for row in rows if row[2] >= 0 and not math.isfinite(row[3])]
    forward = [row for row in broken if not SIGNALS[row[1]].backward]
    if not broken:
        return None
    chosen = min(forward, key=lambda row: row[2]) if forward else max(broken, key=lambda row: row[2])
    step, signal, place, value = chosen
    flow = "forward" if forward else "backward"
    return {"step": step, "signal": signal, "place": place, "value": str(value), "flow": flow}
