"""`explain` and `catalogue`: what the rules say about themselves."""

from __future__ import annotations

from streamgauge.rules.rule import FAMILIES, RULES, Rule, find_rule


def explain(code_or_name: str) -> str:
    """The whole text of one rule: code, name, family, its headings, what it needs and its thresholds."""
    entry = find_rule(code_or_name)
    needs = [name for name in entry.needs if name != "harm"]  # harm is always there, and says "unknown" without a loss
    uses = [*entry.uses, *(["loss"] if "harm" in entry.needs and "loss" not in entry.uses else [])]
    asks = [", ".join(needs)] * bool(needs) + [f"uses if there: {', '.join(uses)}"] * bool(uses)
    lines = [f"{entry.code} {entry.name} ({entry.family})", str(entry.text), "Needs\n  " + "; ".join(asks)]
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
