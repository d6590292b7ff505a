"""Findings: what a rule says, what it rests on, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from pydantic import with_config

from streamgauge.vocabulary.word import JSON, Word

Severity = Literal["info", "warning", "error"]
Answer = Literal["trains", "at risk", "will not train", "not assessed"]


@with_config(JSON)
@dataclass(frozen=True)
class Quantity(Word):
    """A number (or a name) that a finding rests on, with its unit; "1" for a pure number.

    A value that is not finite is held by its name: "nan", "inf", "-inf".
    """

    value: float | int | str | None
    unit: str = "1"

    def __post_init__(self) -> None:
        if isinstance(self.value, float) and not np.isfinite(self.value):  # JSON has no NaN
            object.__setattr__(self, "value", str(self.value))

    def __str__(self) -> str:
        shown = f"{self.value:.4g}" if isinstance(self.value, float) else str(self.value)
        return shown if self.unit == "1" else f"{shown} {self.unit}"


@with_config(JSON)
@dataclass(frozen=True)
class Finding(Word):
    """What a rule says.

    place is a module path or a range of layers; cause says why it happens, fix what to change, source where the
    threshold or the remedy comes from; consequences are the findings that this one explains.
    """

    code: str
    name: str
    severity: Severity
    place: str
    message: str
    evidence: dict[str, Quantity] = field(default_factory=dict)
    cause: str = ""
    fix: str = ""
    source: str = ""
    consequences: tuple[Finding, ...] = ()


@with_config(JSON)
@dataclass(frozen=True)
class NotAssessed(Word):
    """A rule that could not judge, and why."""

    code: str
    name: str
    reason: str


@with_config(JSON)
@dataclass(frozen=True)
class Verdict(Word):
    """Will it train: the answer, its probability, and the largest learning rate expected to train."""

    answer: Answer
    reason: str = ""
    probability: float | None = None
    max_lr: float | None = None
    max_lr_interval: tuple[float, float] | None = None

    def __str__(self) -> str:
        return f"{self.answer}: {self.reason}" if self.reason else self.answer
