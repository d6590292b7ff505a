"""What `check` runs before a training run: wiring, static rules, readings at initialization."""

from __future__ import annotations

from streamgauge.preflight.check import check, check_target
from streamgauge.preflight.result import CheckResult

__all__ = ["CheckResult", "check", "check_target"]
