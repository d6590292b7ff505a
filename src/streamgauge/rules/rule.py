"""A rule: a function that receives by argument name what it judges, registered by the decorator beside it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from streamgauge.errors import InputError, unknown
from streamgauge.registry import Registry
from streamgauge.rules.evidence import KNOWN, CannotJudge, Evidence
from streamgauge.rules.text import Text
from streamgauge.vocabulary import Finding, NotAssessed, Quantity, Severity

FAMILIES: dict[str, str] = {
    "W": "wiring",
    "I": "initialization",
    "O": "optimizer and schedule",
    "P": "precision",
    "D": "data and masks",
    "T": "training dynamics",
}
"""First letter of a code -> family, in the order from cause to symptom."""

Judge = Callable[..., Iterable[Finding] | NotAssessed | None]


@dataclass(frozen=True)
class Find:
    """Makes the findings of one rule: code, name and source are filled in."""

    code: str
    name: str
    source: str

    def __call__(
        self,
        severity: Severity,
        place: str,
        message: str,
        *,
        evidence: Mapping[str, Quantity],
        cause: str,
        fix: str,
    ) -> Finding:
        return Finding(self.code, self.name, severity, place, message, dict(evidence), cause, fix, self.source)


@dataclass(frozen=True)
class Rule:
    """One entry of `RULES`.

    needs, uses   evidence by name, required and optional
    thresholds    keyword -> default value
    explains      the names of the rules whose findings this one, where it is found, accounts for
    """

    code: str
    name: str
    judge: Judge
    text: Text
    needs: tuple[str, ...]
    uses: tuple[str, ...]
    thresholds: Mapping[str, float]
    explains: tuple[str, ...]

    @property
    def family(self) -> str:
        return FAMILIES[self.code[0]]

    def __call__(self, evidence: Evidence, **thresholds: float) -> tuple[Finding, ...] | NotAssessed:
        """The findings, () where the rule passes, or NotAssessed. An unknown threshold raises InputError."""
        for key, value in thresholds.items():
            if key not in self.thresholds:
                raise unknown(f"threshold of {self.name}", key, self.thresholds)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InputError(f"threshold {key!r} of {self.name} is {value!r}: give a number")
        values = dict(evidence)
        missing = [name for name in self.needs if name not in values]
        if missing:
            return self._not_assessed(", and ".join(f"needs {name}, which {KNOWN[name]}" for name in missing))
        given = {name: values.get(name) for name in (*self.needs, *self.uses)}
        find = Find(self.code, self.name, " ".join(self.text.sections["Source"].split()))
        try:
            answer = self.judge(find, **given, **thresholds)
            if isinstance(answer, NotAssessed):
                return answer
            return tuple(answer or ())
        except CannotJudge as why:
            return self._not_assessed(str(why))

    def _not_assessed(self, reason: str) -> NotAssessed:
        return NotAssessed(self.code, self.name, reason)


RULES: Registry[Rule] = Registry("rule")
"""name -> Rule, in the order of registration."""


def rule(code: str, name: str, *, explains: Iterable[str] = ()) -> Callable[[Judge], Rule]:
    """Register the function below as a rule.

    `def missing_residual(find, wiring, harm, token_cosine=None, *, collapse=0.95)`: the first argument makes
    findings; then evidence by name (no default: required; None: used if there); after the star, thresholds.
    The docstring is the rule's text (`rules.text`). The function yields findings, or raises CannotJudge.
    """
    if not re.fullmatch(rf"[{''.join(FAMILIES)}]\d{{3}}", code):
        raise ValueError(f"rule code {code!r}: one letter of {', '.join(FAMILIES)} and three digits")
    if any(code == other.code for other in RULES.values()):
        raise ValueError(f"rule code {code!r} is taken by {next(r.name for r in RULES.values() if r.code == code)}")

    def register(judge: Judge) -> Rule:
        first, *rest = inspect.signature(judge).parameters.values()
        if first.name != "find":
            raise ValueError(f"rule {name}: the first argument is `find`, not {first.name!r}")
        evidence = [p for p in rest if p.kind is p.POSITIONAL_OR_KEYWORD]
        for parameter in evidence:
            if parameter.name not in KNOWN:
                raise unknown(f"evidence in rule {name}", parameter.name, KNOWN)
            if parameter.default not in (parameter.empty, None):
                raise ValueError(f"rule {name}: evidence {parameter.name!r} has no default but None")
        thresholds: dict[str, Any] = {p.name: p.default for p in rest if p.kind is p.KEYWORD_ONLY}
        entry = Rule(
            code=code,
            name=name,
            judge=judge,
            text=Text.parse(name, inspect.getdoc(judge) or ""),
            needs=tuple(p.name for p in evidence if p.default is p.empty),
            uses=tuple(p.name for p in evidence if p.default is None),
            thresholds=thresholds,
            explains=tuple(explains),
        )
        return RULES.add(name, entry)

    return register


def find_rule(code_or_name: str) -> Rule:
    """The rule of that code (any case) or name; InputError with the closest match."""
    wanted = code_or_name.strip()
    for entry in RULES.values():
        if wanted.upper() == entry.code or wanted.lower() == entry.name:
            return entry
    raise unknown("rule", code_or_name, [*RULES, *(r.code for r in RULES.values())])
