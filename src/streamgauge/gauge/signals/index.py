"""The page of all signals, docs/signals.md, from the registry: `python -m streamgauge.gauge.signals.index`."""

from __future__ import annotations

from streamgauge.gauge.signals import SIGNALS

OPENING = """# Signals

Written by `python -m streamgauge.gauge.signals.index > docs/signals.md` from the registry. A signal of level *place* is
one number for each sublayer, one of level *run* one number for the step. x is the stream that enters a join, f what
the branch adds, x' the stream that leaves. Unit 1: a pure number.
"""


def page() -> str:
    """Markdown: name, unit, level, pass and definition of every signal, in the order of registration."""
    lines = [OPENING]
    for name, entry in SIGNALS.items():
        measured = ""
        if entry.level == "place":
            measured = ", in the backward pass" if entry.backward else ", in the forward pass"
        lines += [f"## {name}", "", f"Unit {entry.unit}; level {entry.level}{measured}.", "", entry.doc, ""]
    return "\n".join(lines).rstrip("\n") + "\n"


if __name__ == "__main__":
    print(page(), end="")
