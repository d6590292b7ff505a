"""docs/signals.md is what the registry says."""

from __future__ import annotations

from pathlib import Path

from streamgauge.gauge.signals import SIGNALS
from streamgauge.gauge.signals.index import page

PAGE = Path(__file__).parents[3] / "docs" / "signals.md"


def test_the_page_is_current() -> None:
    command = "python -m streamgauge.gauge.signals.index > docs/signals.md"
    assert PAGE.read_text(encoding="utf-8") == page(), f"docs/signals.md is out of date: {command}"


def test_every_signal_says_what_it_is() -> None:
    text = page()
    for name, entry in SIGNALS.items():
        assert f"\n## {name}\n\nUnit {entry.unit}; level {entry.level}" in text
        assert entry.doc, f"{name} has no docstring"
