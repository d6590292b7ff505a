"""The plots of the report: a registry, one family a file."""

from __future__ import annotations

from streamgauge.reporting.plots.loss import loss_curves  # isort: skip - the page shows plots in this order
from streamgauge.reporting.plots.run import run_curves  # isort: skip
from streamgauge.reporting.plots.depth import depth_profile  # isort: skip
from streamgauge.reporting.plots.heat import layer_by_step  # isort: skip
from streamgauge.reporting.plots.registry import PLOTS, ColourKey, Figure, Panel, Plot, plot, signal_plot

__all__ = [
    "PLOTS",
    "ColourKey",
    "Figure",
    "Panel",
    "Plot",
    "depth_profile",
    "layer_by_step",
    "loss_curves",
    "plot",
    "run_curves",
    "signal_plot",
]
