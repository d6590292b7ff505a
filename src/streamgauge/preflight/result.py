"""What `check` answers: one frozen value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from streamgauge.gauge.plain import plain
from streamgauge.preflight.rehearsal import Rehearsed
from streamgauge.rules import Examination
from streamgauge.vocabulary import Answer, Finding, NotAssessed, Readings, Schedule, Verdict, Wiring

PLANNED = 200
"""Ticks of a schedule that go into JSON."""


@dataclass(frozen=True)
class CheckResult:
    """Wiring, readings at initialization and in rehearsal, findings, and the verdict drawn from them.

    target      what was checked, in one line
    answer      the verdict with its reason; its fields stand on the result too (`verdict`, `probability`, `max_lr` ...)
    readings    step 0 is the model at initialization, the others the rehearsal's
    notes       one line for each thing that was assumed or left out
    facts       what the rules were told beside the readings: setup, schedule, handling, parameters, probes ...
    rehearsal   what the rehearsal met; None where nothing was rehearsed
    spent       evaluations of the loss
    """

    target: str
    wiring: Wiring
    answer: Verdict
    examination: Examination
    readings: Mapping[str, Readings] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    facts: Mapping[str, object] = field(default_factory=dict)
    rehearsal: Rehearsed | None = None
    spent: int = 0

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
            "facts": {name: plain(value, name) for name, value in self._told().items()},
            "rehearsal": self._rehearsal(),
            "evaluations": self.spent,
        }

    def _told(self) -> dict[str, object]:
        """The facts, without the list of all parameters, and with the start of a long schedule."""
        told = {name: value for name, value in self.facts.items() if value is not None and name != "parameters"}
        schedule = told.get("schedule")
        if isinstance(schedule, Schedule):
            told["schedule"] = replace(schedule, planned=schedule.planned[:PLANNED])
        return told

    def _rehearsal(self) -> dict[str, Any] | None:
        done = self.rehearsal
        if done is None:
            return None
        return {"steps": done.taken, "peak_from": done.peak_from, "stopped": done.stopped, "failure": done.failure}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)
