"""One self-contained HTML file from a report's plain values."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from streamgauge.reporting.drawing import draw
from streamgauge.reporting.model import Arm, Report
from streamgauge.reporting.numbers import counted, evidence, fixed, shown, when
from streamgauge.reporting.plots import PLOTS, Panel, Plot
from streamgauge.reporting.plots.heat import BROKEN, NOTHING, TOP
from streamgauge.reporting.signals import LAYER_VIEWS, View, view
from streamgauge.reporting.summary import SEVERITIES, Summary, count, main_finding, summarise
from streamgauge.vocabulary import Finding

TONES = {"trains": "good", "at risk": "warning", "will not train": "error", "not assessed": "unknown"}
_CODE = re.compile(r"`([^`]+)`")
_ARXIV = re.compile(r"\b(\d\d(?:0[1-9]|1[0-2])\.\d{4,5})\b")


def render(report: Report) -> str:
    """The report as HTML: styles, script and plotly inside, nothing fetched, readable without JavaScript.

    Every text from the report is escaped. A content security policy in the page allows no request at all and no script
    but the page's own two, named by their hashes.
    """
    figures: list[dict[str, Any]] = []
    whole = [_placed(plot, plot.draw(report), figures) for plot in PLOTS.values() if not plot.per_signal]
    signals = [_signal(report, signal, figures) for signal in layer_signals(report)]
    environment = _environment()
    script = Markup(_inline(environment.get_template("page.js.jinja").render(codes=_CODES)))
    plotly = Markup(_inline(_plotly())) if figures else Markup("")
    return environment.get_template("page.html.jinja").render(
        report=report,
        arms=[ArmView(index, arm, summarise(arm, report)) for index, arm in enumerate(report.arms)],
        plots=[placed for placed in whole if placed],
        signals=[section for section in signals if section.plots],
        settings=compare([arm.config for arm in report.arms]),
        facts=compare([_facts(arm, report) for arm in report.arms]),
        style=Markup((Path(__file__).parent / "page.css").read_text(encoding="utf-8")),
        plotly=plotly,
        script=script,
        hashes=[_hash(text) for text in (plotly, script) if text],
        figures_json=_json(figures),
    )


_CODES = {"broken": BROKEN, "nothing": NOTHING, "top": TOP}


@dataclass(frozen=True)
class ArmView:
    """An arm with what the page says of it."""

    index: int
    arm: Arm
    summary: Summary

    @property
    def tone(self) -> str:
        return TONES[self.arm.verdict.answer]

    @property
    def main(self) -> Finding | None:
        return main_finding(self.arm)

    @property
    def wiring(self) -> str:
        return draw(self.arm.wiring) if self.arm.wiring is not None else ""


@dataclass(frozen=True)
class Placed:
    """A plot drawn, with the numbers under which the script finds its figures."""

    plot: Plot
    panel: Panel
    first: int


@dataclass(frozen=True)
class Signal:
    """The section of one layer signal."""

    name: str
    view: View
    plots: tuple[Placed, ...]


@dataclass(frozen=True)
class Settings:
    """The arms' settings or facts: (name, one value per arm) where they differ, (name, value) where they agree."""

    differing: tuple[tuple[str, tuple[str, ...]], ...]
    common: tuple[tuple[str, str], ...]


def layer_signals(report: Report) -> list[str]:
    """The signals measured by layer: those with a view in its order, then any other."""
    recorded = {
        name for arm in report.arms for name, r in arm.readings.items() if any(place.index >= 0 for place in r.places)
    }
    return [name for name in LAYER_VIEWS if name in recorded] + sorted(recorded - set(LAYER_VIEWS))


def compare(tables: Sequence[Mapping[str, object]]) -> Settings:
    """Which entries differ between the arms' tables, and which all of them share."""
    names = dict.fromkeys(name for table in tables for name in table)
    differing, common = [], []
    for name in names:
        values = tuple(shown(table.get(name)) for table in tables)
        if len(set(values)) > 1:
            differing.append((name, values))
        else:
            common.append((name, values[0]))
    return Settings(tuple(differing), tuple(common))


def _facts(arm: Arm, report: Report) -> dict[str, object]:
    """The facts of an arm that the page does not show elsewhere."""
    known = {*arm.config, *report.data.facts, "command", "unigram_entropy"}
    said = (report.data.hash, report.data.description)
    return {name: fact for name, fact in arm.facts.items() if name not in known and shown(fact) not in said}


def _placed(plot: Plot, panel: Panel | None, figures: list[dict[str, Any]]) -> Placed | None:
    if panel is None:
        return None
    first = len(figures)
    figures += [figure.payload() for figure in panel.figures]
    return Placed(plot, panel, first)


def _signal(report: Report, signal: str, figures: list[dict[str, Any]]) -> Signal:
    drawn = (_placed(plot, plot.draw(report, signal), figures) for plot in PLOTS.values() if plot.per_signal)
    return Signal(signal, view(signal), tuple(placed for placed in drawn if placed))


@cache
def _environment() -> Environment:
    loader = FileSystemLoader(Path(__file__).parent, encoding="utf-8")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "shown": shown,
        "evidence": evidence,
        "fixed": fixed,
        "sources": _sources,
        "prose": _prose,
        "when": when,
        "counts": _counts,
    }
    return environment


def _sources(text: str) -> Markup:
    """Escaped text in which the number of an arXiv paper is a link (followed by a click only)."""
    link = r'<a rel="noreferrer" href="https://arxiv.org/abs/\1">\1</a>'
    return Markup(_ARXIV.sub(link, str(escape(text))))


def _prose(text: str) -> Markup:
    """Escaped text in which `backticks` set code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))


def _counts(findings: tuple[Finding, ...]) -> Iterator[tuple[str, str]]:
    counts = count(findings)
    return ((severity, counted(counts[severity], severity)) for severity in SEVERITIES if counts[severity])


def _json(figures: list[dict[str, Any]]) -> Markup:
    """JSON that is safe inside a script element: no "<", and none of the line ends that JavaScript alone knows."""
    text = json.dumps(figures, allow_nan=False, separators=(",", ":"))  # ASCII: U+2028 is escaped already
    return Markup(text.replace("<", "\\u003c"))


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs  # slow to import, and the terminal views do without it

    return str(get_plotlyjs())


def _inline(script: str) -> str:
    return script.replace("\r\n", "\n").replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _hash(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
