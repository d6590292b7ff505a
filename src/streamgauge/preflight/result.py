"""What `check` answers: one frozen value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streamgauge.rules import Examination
from streamgauge.vocabulary import Answer, Finding, NotAssessed, Readings, Verdict, Wiring


@dataclass(frozen=True)
class CheckResult:
    """Wiring, readings at initialization, findings, and the verdict drawn from them.

    target   what was checked, in one line
    answer   the verdict with its reason; its fields stand on the result too (`verdict`, `probability`, `max_lr` ...)
    notes    one line for each thing that was assumed or left out
    """

    target: str
    wiring: Wiring
    answer: Verdict
    examination: Examination
    readings: Mapping[str, Readings] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> Answer:
        """ "trains", "at risk", "will not train" or "not assessed"."""
        return self.answer.answer

    @property
    def probability(self) -> float | None:
        """Probability that the run trains; None while it is not assessed."""
        return self.answer.probability

    @property
    def max_lr(self) -> float | None:
        """Largest learning rate expected to train; None while it is not assessed."""
        return self.answer.max_lr

    @property
    def max_lr_interval(self) -> tuple[float, float] | None:
        return self.answer.max_lr_interval

    @property
    def findings(self) -> list[Finding]:
        """Root cause first; what a finding explains hangs under it in `consequences`."""
        return list(self.examination.findings)

    @property
    def not_assessed(self) -> list[NotAssessed]:
        return list(self.examination.not_assessed)

    @property
    def exit_code(self) -> int:
        """1 where a finding is an error, else 0."""
        return int(self.examination.worst == "error")

    def to_dict(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "verdict": self.answer.to_dict(),
            "findings": [f.to_dict() for f in self.findings],
            "not_assessed": [n.to_dict() for n in self.not_assessed],
            "passed": list(self.examination.passed),
            "wiring": self.wiring.to_dict(),
            "readings": {name: readings.to_dict() for name, readings in self.readings.items()},
            "notes": list(self.notes),
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)
