"""docs/rules.md is what the registry says."""

from __future__ import annotations

from pathlib import Path

from streamgauge.rules import catalogue
from streamgauge.rules.index import page

PAGE = Path(__file__).parents[2] / "docs" / "rules.md"


def test_the_page_is_current() -> None:
    command = "python -m streamgauge.rules.index > docs/rules.md"
    assert PAGE.read_text(encoding="utf-8") == page(), f"docs/rules.md is out of date: {command}"


def test_every_rule_has_its_entry_and_a_link_to_it() -> None:
    text = page()
    for rule in catalogue():
        assert f"\n## {rule.code} {rule.name}\n" in text
        assert f"(#{rule.code.lower()}-{rule.name})" in text
        assert all(f"`{name} = " in text for name in rule.thresholds)
