"""What `check` found, and plain listings, for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from streamgauge.reporting.drawing import draw
from streamgauge.reporting.numbers import printable, shown
from streamgauge.reporting.terminal import findings_text, verdict_line

if TYPE_CHECKING:
    from streamgauge.preflight import CheckResult

PROFILE = ("stream_rms", "branch_ratio", "cosine_excess", "token_cosine", "grad_rms", "retention")


def check_text(result: CheckResult) -> RenderableType:
    """Verdict, drawing, readings at the first, middle and last place, findings, and what was assumed."""
    parts: list[RenderableType] = [
        verdict_line(result.answer, result.target),
        Text(str(result.wiring)),
        Text(""),
        Text(draw(result.wiring)),
    ]
    if result.readings:
        parts += [Text(""), Text("At initialization", style="bold"), _profile(result)]
    parts += [Text(""), findings_text(result.findings, result.not_assessed)]
    assumed = [note for note in result.notes if note not in result.wiring.notes]
    if assumed:
        parts += [Text(""), *(Text(f"note: {printable(note)}", style="dim") for note in assumed)]
    return Group(*parts)


def _profile(result: CheckResult) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("signal", "unit", "first", "middle", "last", "lowest", "highest"):
        table.add_column(heading, justify="left" if heading in ("signal", "unit") else "right")
    for name in PROFILE:
        readings = result.readings.get(name)
        if readings is None or not readings.values.size or np.isnan(readings.first).all():
            continue
        row = readings.first[~np.isnan(readings.first)]
        ends = (row[0], row[len(row) // 2], row[-1], row.min(), row.max())
        table.add_row(name, readings.unit, *(shown(float(value), 3) for value in ends))
    total = result.readings.get("retention_total")
    if total is not None and total.values.size:
        table.add_row("retention_total", total.unit, shown(float(total.first[0]), 3))
    return table


def listing(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Rows under headings, without a frame."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table
