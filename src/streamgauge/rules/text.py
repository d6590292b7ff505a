"""The text of a rule: its docstring, a summary line and fixed headings."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

HEADINGS = ("What it does", "Why it matters", "Threshold", "How to fix", "Example", "Source")


@dataclass(frozen=True)
class Text:
    """summary: the first line; sections: heading -> text, every one of `HEADINGS`."""

    summary: str
    sections: Mapping[str, str]

    @classmethod
    def parse(cls, name: str, docstring: str) -> Text:
        """Split a docstring at lines that hold a heading and a colon; a heading that is missing raises ValueError."""
        head, *rest = re.split(rf"^({'|'.join(HEADINGS)}):\s*$", docstring, flags=re.MULTILINE)
        sections = {h: textwrap.dedent(body.strip("\n")).strip() for h, body in zip(rest[::2], rest[1::2], strict=True)}
        for heading in HEADINGS:
            if not sections.get(heading):
                raise ValueError(f"rule {name}: its docstring has no text under {heading + ':'!r}")
        summary = head.strip()
        if not summary or "\n" in summary:
            raise ValueError(f"rule {name}: its docstring opens with one summary line")
        return cls(summary, sections)

    def __str__(self) -> str:
        body = "\n\n".join(f"{h}\n{textwrap.indent(self.sections[h], '  ')}" for h in HEADINGS)
        return f"{self.summary}\n\n{body}"
