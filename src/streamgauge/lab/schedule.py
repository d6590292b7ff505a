"""The learning rate over the steps of a run."""

from __future__ import annotations

import math


def warmup_cosine(step: int, steps: int, warmup: int, floor: float) -> float:
    """Factor on the peak: (t + 1) / w for t < w; else f + (1 - f) (1 + cos(pi (t - w) / (T - w))) / 2.

    t step from 0, T steps, w steps of warm-up, f the floor as a share of the peak; reaches f at t = T.
    """
    if step < warmup:
        return (step + 1) / warmup
    passed = min(1.0, (step - warmup) / max(1, steps - warmup))
    return floor + (1 - floor) * (1 + math.cos(math.pi * passed)) / 2
