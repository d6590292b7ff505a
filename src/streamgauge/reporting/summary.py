"""The few numbers that stand for an arm in a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from streamgauge.reporting.model import Arm, Report
from streamgauge.vocabulary import Finding, Readings, Severity

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")


@dataclass(frozen=True)
class Summary:
    """Numbers at the end of a run; None where the signal was not recorded.

    val_loss, train_loss  nat; NaN or inf when the run ended so
    gain                  unigram entropy - validation loss, nat: what the model knows beyond token frequencies
    retention             gradient rms, first place over last
    token_cosine          at the last place
    steps                 last step recorded
    findings              how many of each severity, consequences included
    """

    val_loss: float | None
    train_loss: float | None
    gain: float | None
    retention: float | None
    token_cosine: float | None
    steps: int | None
    findings: dict[Severity, int]


def summarise(arm: Arm, report: Report) -> Summary:
    """The numbers of one arm."""
    val_loss, entropy = last(arm.readings.get("val_loss")), report.data.unigram_entropy
    recorded = [int(r.steps[-1]) for r in arm.readings.values() if len(r)]
    return Summary(
        val_loss=val_loss,
        train_loss=last(arm.readings.get("loss")),
        gain=None if val_loss is None or entropy is None else entropy - val_loss,
        retention=last(arm.readings.get("retention_total")),
        token_cosine=last(arm.readings.get("token_cosine")),
        steps=max(recorded, default=None),
        findings=count(arm.findings),
    )


def last(readings: Readings | None) -> float | None:
    """The value at the last step, at the last place where the signal was ever measured."""
    if readings is None or not readings.values.size:
        return None
    return float(measured(readings).values[-1, -1])


def measured(readings: Readings) -> Readings:
    """Without the places that hold no number at any step: the signal is not measured there.

    Where that is all of them, all stay: a step stands in the readings only because something was recorded at it, NaN.
    """
    seen = np.flatnonzero(~np.isnan(readings.values).all(axis=0))
    if len(seen) in (0, len(readings.places)):
        return readings
    return replace(readings, values=readings.values[:, seen], places=tuple(readings.places[i] for i in seen))


def count(findings: Iterable[Finding]) -> dict[Severity, int]:
    """How many findings of each severity there are, consequences included."""
    found = Counter(finding.severity for finding in walk(findings))
    return {severity: found[severity] for severity in SEVERITIES}


def walk(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Every finding, each cause before its consequences."""
    for finding in findings:
        yield finding
        yield from walk(finding.consequences)


def main_finding(arm: Arm) -> Finding | None:
    """The finding that explains the arm: the first one that is more than information."""
    return next((f for f in arm.findings if f.severity != "info"), None)
