"""`explain` and `catalogue`: what the rules say about themselves."""

from __future__ import annotations

from streamgauge.rules.rule import FAMILIES, RULES, Rule, find_rule


def explain(code_or_name: str) -> str:
    """The whole text of one rule: code, name, family, its headings, what it needs and its thresholds."""
    entry = find_rule(code_or_name)
    needs = ", ".join(entry.needs)
    uses = f"; uses if there: {', '.join(entry.uses)}" if entry.uses else ""
    lines = [f"{entry.code} {entry.name} ({entry.family})", str(entry.text), f"Needs\n  {needs}{uses}"]
    if entry.thresholds:
        settings = "\n".join(f"  {name} = {value:g}" for name, value in entry.thresholds.items())
        lines.append(f"Settings\n{settings}")
    if entry.explains:
        lines.append(f"Explains\n  {', '.join(entry.explains)}")
    return "\n\n".join(lines)


def catalogue() -> list[Rule]:
    """All rules, by family from cause to symptom, then by code."""
    order = list(FAMILIES)
    return sorted(RULES.values(), key=lambda r: (order.index(r.code[0]), r.code))
