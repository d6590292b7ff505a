"""The same views in a terminal, coloured only where one is."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Sequence
from typing import TextIO

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from streamgauge.reporting.model import Report
from streamgauge.reporting.numbers import counted, evidence, fixed, printable, shown
from streamgauge.reporting.summary import SEVERITIES, Summary, summarise
from streamgauge.vocabulary import Finding, NotAssessed, Verdict

TONES = {"trains": "bold green", "at risk": "bold yellow", "will not train": "bold red", "not assessed": "bold"}
SEVERITY_TONES = {"error": "bold red", "warning": "bold yellow", "info": "bold blue"}
INDENT = "  "
_ASCII = str.maketrans({"–": "-", "│": "|", "├": "+", "╰": "+", "╭": "+", "╯": "+", "╮": "+", "─": "-", "▶": ">",
                        "◀": "<", "▼": "v", "⊕": "+", "×": "x", "≤": "<", "≥": ">", "━": "-", "·": "-"})  # fmt: skip


def verdict_line(verdict: Verdict, name: str = "") -> Text:
    """One line: arm, answer, reason, probability and largest learning rate where they are known."""
    line = Text(f"{printable(name)}  " if name else "", style="bold")
    line.append(verdict.answer, style=TONES[verdict.answer])
    if verdict.reason:
        line.append(f": {printable(verdict.reason)}", style="not bold")
    known = [("probability", verdict.probability), ("largest learning rate", verdict.max_lr)]
    extra = ", ".join(f"{what} {shown(value)}" for what, value in known if value is not None)
    if extra:
        line.append(f" ({extra})", style="not bold dim")
    return line


def arms_table(report: Report) -> Table:
    """One row per arm: outcome, validation loss, unigram entropy, gradient retention, token cosine, findings."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("arm", overflow="fold")
    table.add_column("verdict")
    table.add_column("outcome")
    for heading in ("val loss", "unigram", "retention", "token cos"):
        table.add_column(heading, justify="right")
    table.add_column("findings")
    entropy = fixed(report.data.unigram_entropy)
    for arm in report.arms:
        found = summarise(arm, report)
        table.add_row(
            Text(printable(arm.name)),
            Text(arm.verdict.answer, style=TONES[arm.verdict.answer]),
            Text(printable(arm.outcome) or "–"),
            fixed(found.val_loss),
            entropy,
            shown(found.retention, 3),
            fixed(found.token_cosine),
            _counts(found),
        )
    return table


def findings_text(findings: Iterable[Finding], not_assessed: Sequence[NotAssessed] = ()) -> Text:
    """Every finding with place, evidence, cause, fix and source; its consequences indented below it."""
    text = Text()
    for finding in findings:
        _add(text, finding, 0)
    if not text:
        text.append("no findings\n")
    if not_assessed:
        text.append(f"{len(not_assessed)} not assessed\n", style="dim")
        for entry in not_assessed:
            text.append(f"{INDENT}{entry.code} {entry.name}: {printable(entry.reason)}\n", style="dim")
    text.rstrip()
    return text


def show(view: RenderableType, file: TextIO | None = None) -> None:
    """Print a view: colours on a terminal only, ASCII where the stream cannot take more."""
    target = file or sys.stdout
    if "utf" not in (getattr(target, "encoding", None) or "utf-8").lower():
        target.write(plain(view).translate(_ASCII).encode("ascii", "replace").decode())
    elif target.isatty():
        Console(file=target, highlight=False).print(_literal(view))
    else:
        target.write(plain(view))


def plain(view: RenderableType, width: int = 200) -> str:
    """The view as text without colours or trailing blanks."""
    buffer = io.StringIO()
    Console(file=buffer, width=width, highlight=False, no_color=True, force_terminal=False).print(_literal(view))
    return "".join(f"{line.rstrip()}\n" for line in buffer.getvalue().splitlines())


def _literal(view: RenderableType) -> RenderableType:
    """A string as it stands: rich would read "[red]" in a name as markup."""
    return Text(view) if isinstance(view, str) else view


def _counts(found: Summary) -> Text:
    text = Text()
    for severity in SEVERITIES:
        if found.findings[severity]:
            text.append(", " if text else "")
            text.append(counted(found.findings[severity], severity), style=SEVERITY_TONES[severity])
    return text or Text("none")


def _add(text: Text, finding: Finding, depth: int) -> None:
    pad = INDENT * depth
    text.append(pad)
    text.append(finding.severity, style=SEVERITY_TONES[finding.severity])
    place = f"  {printable(finding.place)}" if finding.place else ""
    text.append(f" {finding.code} {finding.name}{place}\n", style="bold")
    text.append(f"{pad}{INDENT}{printable(finding.message)}\n")
    if finding.evidence:
        told = (f"{name} {' '.join(evidence(quantity)).strip()}" for name, quantity in finding.evidence.items())
        text.append(f"{pad}{INDENT}evidence: {printable(', '.join(told))}\n")
    for label in ("cause", "fix", "source"):
        if getattr(finding, label):
            text.append(f"{pad}{INDENT}{label}: ", style="dim")
            text.append(f"{printable(getattr(finding, label))}\n")
    if finding.consequences:
        text.append(f"{pad}{INDENT}explains:\n", style="dim")
    for consequence in finding.consequences:
        _add(text, consequence, depth + 2)
