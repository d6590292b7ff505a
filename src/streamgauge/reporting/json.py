"""A report as JSON: what a program needs of it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from streamgauge.reporting.model import Arm, Report
from streamgauge.reporting.summary import summarise

FORMAT = 1


def to_json(report: Report, readings: bool = False) -> str:
    """Strict JSON of verdicts, numbers, findings, wiring and settings; with every reading where `readings` is set.

    A number that is not finite is written as the string "nan", "inf" or "-inf", as in `Quantity`; a reading that was
    not taken is null.
    """
    data = {**asdict(report.data), "facts": dict(report.data.facts)}
    document = {
        "format": FORMAT,
        "title": report.title,
        "made_at": report.made_at,
        "command": report.command,
        "versions": dict(report.versions),
        "data": data,
        "arms": [_arm(arm, report, readings) for arm in report.arms],
    }
    return json.dumps(_plain(document), allow_nan=False, ensure_ascii=False, indent=2)


def _arm(arm: Arm, report: Report, readings: bool) -> dict[str, Any]:
    view: dict[str, Any] = {
        "name": arm.name,
        "verdict": arm.verdict.to_dict(),
        "outcome": arm.outcome,
        "summary": asdict(summarise(arm, report)),
        "findings": [finding.to_dict() for finding in arm.findings],
        "not_assessed": [entry.to_dict() for entry in arm.not_assessed],
        "wiring": None if arm.wiring is None else arm.wiring.to_dict(),
        "config": dict(arm.config),
        "facts": dict(arm.facts),
    }
    if readings:
        view["readings"] = {
            name: {
                "unit": r.unit,
                "steps": r.steps.tolist(),
                "places": [place.to_dict() for place in r.places],
                "values": [[None if math.isnan(v) else v for v in row] for row in r.values.tolist()],
            }
            for name, r in arm.readings.items()
        }
    return view


def _plain(value: Any) -> Any:
    """Only what JSON knows: other values become text, numbers that are not finite their names."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
