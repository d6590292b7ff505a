"""The words that every room shares: Wiring, Join, Reading, Finding, Verdict.

Each is a frozen dataclass that goes to JSON and back without loss (`to_json`, `from_json`).
"""

from __future__ import annotations

from streamgauge.vocabulary.findings import Answer, Finding, NotAssessed, Quantity, Severity, Verdict
from streamgauge.vocabulary.readings import RUN, Place, Reading, Readings
from streamgauge.vocabulary.setup import (
    Flag,
    Handling,
    OptimizerSetup,
    Origin,
    Parameter,
    ParameterGroup,
    Probe,
    Schedule,
)
from streamgauge.vocabulary.wiring import BranchKind, Join, Norm, NormKind, Placement, Scale, Tap, Wiring
from streamgauge.vocabulary.word import Word

__all__ = [
    "RUN",
    "Answer",
    "BranchKind",
    "Finding",
    "Flag",
    "Handling",
    "Join",
    "Norm",
    "NormKind",
    "NotAssessed",
    "OptimizerSetup",
    "Origin",
    "Parameter",
    "ParameterGroup",
    "Place",
    "Placement",
    "Probe",
    "Quantity",
    "Reading",
    "Readings",
    "Scale",
    "Schedule",
    "Severity",
    "Tap",
    "Verdict",
    "Wiring",
    "Word",
]
