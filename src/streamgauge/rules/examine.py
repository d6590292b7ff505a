"""Run the rules over the evidence: findings with the root cause first, and what could not be judged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streamgauge.errors import InputError
from streamgauge.rules.catalogue import catalogue
from streamgauge.rules.evidence import Evidence
from streamgauge.rules.order import arrange
from streamgauge.rules.rule import Rule, find_rule
from streamgauge.vocabulary import Finding, NotAssessed, Severity, Word


@dataclass(frozen=True)
class Examination(Word):
    """findings, root cause first; the rules not assessed, each with its reason; the names of those that passed."""

    findings: tuple[Finding, ...] = ()
    not_assessed: tuple[NotAssessed, ...] = ()
    passed: tuple[str, ...] = ()

    @property
    def worst(self) -> Severity | None:
        """The highest severity among the findings, None where there is none."""
        levels: tuple[Severity, ...] = ("error", "warning", "info")
        return next((level for level in levels if any(f.severity == level for f in self.findings)), None)


def examine(
    evidence: Evidence,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    thresholds: Mapping[str, Mapping[str, float]] | None = None,
) -> Examination:
    """Ask every selected rule.

    select, ignore  codes, names, or family letters ("W"); an empty select is all. Unknown ones raise InputError.
    thresholds      rule -> {setting: value}, in place of the defaults that `explain` lists
    """
    chosen = _rules("select", select) or None
    settings = {find_rule(name).name: dict(values) for name, values in (thresholds or {}).items()}
    ignored = _rules("ignore", ignore)
    findings: list[Finding] = []
    unjudged: list[NotAssessed] = []
    passed: list[str] = []
    for entry in catalogue():
        if entry.name in ignored or (chosen is not None and entry.name not in chosen):
            continue
        answer = entry(evidence, **settings.get(entry.name, {}))
        if isinstance(answer, NotAssessed):
            unjudged.append(answer)
        elif answer:
            findings.extend(answer)
        else:
            passed.append(entry.name)
    return Examination(arrange(findings), tuple(unjudged), tuple(passed))


def _rules(option: str, names: Iterable[str]) -> set[str]:
    if isinstance(names, str):
        raise InputError(f"{option} is the text {names!r}: give a list of codes or names, [{names!r}]")
    return {entry.name for name in names for entry in _matching(name)}


def _matching(name: str) -> list[Rule]:
    family = [entry for entry in catalogue() if entry.code[0] == name.strip().upper()]
    return family or [find_rule(name)]
