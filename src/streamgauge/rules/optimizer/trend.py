"""Where a loss curve starts, ends and peaks, and how noisy it is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamgauge.rules.outcome import curve_of
from streamgauge.vocabulary import Quantity, Readings

FEWEST = 8
"""Losses without which nothing is said of a trend."""


@dataclass(frozen=True)
class Trend:
    """All in nats.

    initial  the first loss
    middle   median of the second quarter
    end      median of the last quarter
    lowest   lowest running median
    peak     the second highest loss: one that a single odd batch does not set
    highest  the highest loss
    noise    1.4826 MAD of the differences of successive losses / sqrt(2)
    broken   step of the first loss that is not finite, None where all are; the rest is of the losses before
    """

    initial: float
    middle: float
    end: float
    lowest: float
    peak: float
    highest: float
    noise: float
    steps: int
    broken: int | None = None

    @property
    def margin(self) -> float:
        """What counts as a change: four times the noise of one loss, at least 0.1 nat."""
        return max(0.1, 4 * self.noise)

    @property
    def evidence(self) -> dict[str, Quantity]:
        return {
            "initial_loss": Quantity(self.initial, "nat"),
            "final_loss": Quantity(self.end, "nat"),
            "highest_loss": Quantity(self.peak, "nat"),
            "steps": Quantity(self.steps, "step"),
        }


def trend(loss: Readings) -> Trend | None:
    """The trend of a run's losses; None with fewer than two finite ones at its start."""
    curve = curve_of(loss)
    finite = np.isfinite(curve)
    broken = None if finite.all() else int(np.argmin(finite))
    before = curve if broken is None else curve[:broken]
    if len(before) < 2:
        return None
    jumps = np.diff(before)
    noise = 1.4826 * float(np.median(np.abs(jumps - np.median(jumps)))) / 2**0.5
    width = max(3, len(before) // 20)
    medians = [float(np.median(before[max(0, i - width + 1) : i + 1])) for i in range(len(before))]
    return Trend(
        initial=float(before[0]),
        middle=float(np.median(before[len(before) // 4 : max(len(before) // 2, len(before) // 4 + 1)])),
        end=float(np.median(before[-max(3, len(before) // 4) :])),
        lowest=min(medians),
        peak=float(np.sort(before)[-2]),
        highest=float(before.max()),
        noise=noise,
        steps=int(loss.steps[len(before) - 1] - loss.steps[0]),
        broken=None if broken is None else int(loss.steps[broken]),
    )
