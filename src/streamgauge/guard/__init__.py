"""Keeps a run alive: what to do with a step whose gradients are not finite."""

from __future__ import annotations

from streamgauge.guard.nonfinite import Guard, NonFiniteGradientError

__all__ = ["Guard", "NonFiniteGradientError"]
