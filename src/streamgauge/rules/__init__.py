"""Rules: a linter for training. `examine(evidence)` -> findings, root cause first; `explain(code)` -> what it means."""

from streamgauge.rules import data, dynamics, initialization, optimizer, precision, structure
from streamgauge.rules.catalogue import catalogue, explain
from streamgauge.rules.evidence import CannotJudge, Evidence, series
from streamgauge.rules.examine import Examination, examine
from streamgauge.rules.outcome import Outcome, degraded, outcome
from streamgauge.rules.rule import FAMILIES, RULES, Find, Rule, find_rule, rule

__all__ = [
    "FAMILIES",
    "RULES",
    "CannotJudge",
    "Evidence",
    "Examination",
    "Find",
    "Outcome",
    "Rule",
    "catalogue",
    "data",
    "degraded",
    "dynamics",
    "examine",
    "explain",
    "find_rule",
    "initialization",
    "optimizer",
    "outcome",
    "precision",
    "rule",
    "series",
    "structure",
]
