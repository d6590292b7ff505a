"""What `check` runs before a training run: wiring, first pass, rehearsal, experiments, and the verdict on them."""

from __future__ import annotations

from streamgauge.preflight.check import check, check_target
from streamgauge.preflight.result import CheckResult

__all__ = ["CheckResult", "check", "check_target"]
