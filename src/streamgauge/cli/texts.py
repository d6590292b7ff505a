"""`streamgauge report`, `explain` and `schemes`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamgauge.cli.flags import path


def report(
    run: Annotated[
        Path,
        typer.Argument(
            parser=path, metavar="PATH", help="A run's folder, or a comparison's; also one still being written."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The HTML file; default: report.html in the folder.",
            parser=path,
            metavar="PATH",
        ),
    ] = None,
) -> int:
    """Write the report of a run or a comparison: one HTML file that opens without a network."""
    from streamgauge.api import report as write_report

    print(write_report(run, out))
    return 0


def explain(
    rule: Annotated[str | None, typer.Argument(help="A code or a name; without one, all rules are listed.")] = None,
) -> int:
    """What a finding means: what the rule does, why it matters, its threshold and source, how to fix it."""
    from streamgauge.reporting import show
    from streamgauge.reporting.checks import listing
    from streamgauge.rules import catalogue
    from streamgauge.rules import explain as text

    if rule is not None:
        print(text(rule))
    else:
        show(
            listing(
                ("code", "rule", "family", "what it finds"),
                ((r.code, r.name, r.family, r.text.summary) for r in catalogue()),
            )
        )
    return 0


def schemes(
    name: Annotated[str | None, typer.Argument(help="A scheme; without one, all are listed.")] = None,
) -> int:
    """The residual schemes that can be built: equation, paper, init, and when to use them."""
    from streamgauge.nn import SCHEMES, describe, equation
    from streamgauge.reporting import show
    from streamgauge.reporting.checks import listing

    if name is not None:
        print(describe(name))
    else:
        rows = ((key, s.title, equation(s), f"{s.paper}, arXiv {s.arxiv}") for key, s in SCHEMES.items())
        show(listing(("scheme", "what it is", "equation", "paper"), rows))
    return 0
