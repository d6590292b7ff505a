"""The page of all rules, docs/rules.md, written from the registry: `python -m streamgauge.rules.index`."""

from __future__ import annotations

from streamgauge.rules.catalogue import catalogue
from streamgauge.rules.rule import FAMILIES, Rule
from streamgauge.rules.text import HEADINGS

OPENING = """# Rules

Written by `python -m streamgauge.rules.index > docs/rules.md` from the texts that `streamgauge explain CODE` prints.
Select with `--select`, `--ignore`, or in `pyproject.toml`:

```toml
[tool.streamgauge]
select = ["W", "I001"]          # codes, names, family letters; empty: all
ignore = ["decay-on-gains"]

[tool.streamgauge.thresholds.token-collapse]
cut = 0.9
```
"""


def page() -> str:
    """Markdown: a table of all rules by family, then the whole text of each with its evidence and thresholds."""
    rules = catalogue()
    lines = [OPENING]
    for letter, family in FAMILIES.items():
        lines += [f"**{letter}: {family}**", "", "| code | rule | what it finds |", "|---|---|---|"]
        lines += [_row(rule) for rule in rules if rule.code[0] == letter]
        lines.append("")
    for rule in rules:
        lines += _entry(rule)
    return "\n".join(lines).rstrip("\n") + "\n"


def _row(rule: Rule) -> str:
    summary = rule.text.summary.replace("|", "\\|")
    return f"| {rule.code} | [{rule.name}](#{rule.code.lower()}-{rule.name}) | {summary} |"


def _entry(rule: Rule) -> list[str]:
    uses = f"; uses where there: {', '.join(rule.uses)}" if rule.uses else ""
    lines = [f"## {rule.code} {rule.name}", "", rule.text.summary, "", f"Needs: {', '.join(rule.needs)}{uses}."]
    if rule.thresholds:
        lines += [
            "",
            "Settings: " + ", ".join(f"`{name} = {value:g}`" for name, value in rule.thresholds.items()) + ".",
        ]
    if rule.explains:
        lines += ["", "Explains: " + ", ".join(rule.explains) + "."]
    for heading in HEADINGS:
        lines += ["", f"**{heading}**", "", rule.text.sections[heading]]
    return [*lines, ""]


if __name__ == "__main__":
    print(page(), end="")
