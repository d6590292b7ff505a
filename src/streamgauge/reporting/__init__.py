"""Views of saved runs: one HTML file, the terminal, JSON. Works from plain values alone."""

from __future__ import annotations

from streamgauge.reporting.drawing import draw
from streamgauge.reporting.json import to_json
from streamgauge.reporting.model import Arm, Data, Report
from streamgauge.reporting.page import render
from streamgauge.reporting.plots import PLOTS, Panel, plot, signal_plot
from streamgauge.reporting.summary import Summary, summarise
from streamgauge.reporting.terminal import arms_table, findings_text, plain, show, verdict_line

__all__ = [
    "PLOTS",
    "Arm",
    "Data",
    "Panel",
    "Report",
    "Summary",
    "arms_table",
    "draw",
    "findings_text",
    "plain",
    "plot",
    "render",
    "show",
    "signal_plot",
    "summarise",
    "to_json",
    "verdict_line",
]
