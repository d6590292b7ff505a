"""Unmodified training scripts under global hooks, as with `coverage run`: rehearsed and judged, or watched."""

from __future__ import annotations

from streamgauge.preflight.script.job import Job, Seen
from streamgauge.preflight.script.judge import check_script, evidence_of
from streamgauge.preflight.script.launcher import launch

__all__ = ["Job", "Seen", "check_script", "evidence_of", "launch"]
