"""Order findings: the root cause first, what it explains attached to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from streamgauge.rules.rule import FAMILIES, RULES
from streamgauge.vocabulary import Finding, Severity

RANK: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}


def explained_by(name: str) -> frozenset[str]:
    """All names that the rule `name` accounts for, directly or through one that it explains."""
    reached: set[str] = set()
    ahead = list(RULES[name].explains) if name in RULES else []
    while ahead:
        following = ahead.pop()
        if following not in reached:
            reached.add(following)
            ahead.extend(RULES[following].explains if following in RULES else ())
    return frozenset(reached)


def arrange(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Roots by severity, then family (wiring ... dynamics), then code; every other finding under its root.

    A finding hangs under the first root whose rule explains it and that is at least as severe: a matter of hygiene
    is not made the cause of a failure. Consequences are one level deep, in the same order.
    """
    ranked = sorted(findings, key=_key)
    causes = {f.name: explained_by(f.name) for f in ranked}
    roots = [
        f
        for f in ranked
        if not any(f.name in causes[c.name] and RANK[c.severity] <= RANK[f.severity] for c in ranked if c is not f)
    ]
    under: dict[int, list[Finding]] = {id(root): [] for root in roots}
    for finding in ranked:
        if id(finding) in under:
            continue
        home = next(r for r in roots if finding.name in causes[r.name] and RANK[r.severity] <= RANK[finding.severity])
        under[id(home)].append(finding)
    return tuple(replace(root, consequences=(*root.consequences, *under[id(root)])) for root in roots)


def _key(finding: Finding) -> tuple[int, int, str]:
    return RANK[finding.severity], list(FAMILIES).index(finding.code[0]), finding.code
