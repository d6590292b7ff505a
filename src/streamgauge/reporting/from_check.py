"""A check as a report of one arm, for the page."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from streamgauge.gauge.about import versions
from streamgauge.reporting.model import Arm, Report

if TYPE_CHECKING:
    from streamgauge.preflight import CheckResult


def report_of_check(result: CheckResult, command: str = "") -> Report:
    """The report of one check: verdict, wiring, readings at initialization and in rehearsal, findings, notes."""
    told = {name: value for name, value in result.to_dict()["facts"].items() if isinstance(value, bool | int | str)}
    facts: dict[str, object] = {**told, "evaluations": result.spent}
    facts |= {f"note {i}": note for i, note in enumerate(result.notes, 1)}
    arm = Arm(
        result.target,
        result.answer,
        wiring=result.wiring,
        readings=result.readings,
        findings=tuple(result.findings),
        not_assessed=tuple(result.not_assessed),
        facts=facts,
    )
    made = datetime.now(UTC).isoformat(timespec="seconds")
    return Report(f"check of {result.target}", (arm,), command, versions(), made_at=made)
