"""Plots register beside their function; the page shows them in the order of registration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streamgauge.registry import Registry
from streamgauge.reporting.model import Report


@dataclass(frozen=True)
class Figure:
    """One drawing, as plain JSON values for the page's script.

    label  what stands above it (an arm's name); arm its place in the report, for the colour of the swatch
    text   what it shows, in words, for readers without the drawing
    data, layout   plotly's; colours are CSS variables ("var(--arm-0)") that the page resolves for light and dark
    log_switch  the ticks of the log axis, where the reader may choose between a linear and a log one
    heat   instead of data: a table of codes that the script turns into a heat map (see `heat.codes`)
    """

    text: str
    label: str = ""
    arm: int | None = None
    data: tuple[Mapping[str, Any], ...] = ()
    layout: Mapping[str, Any] = field(default_factory=dict)
    heat: Mapping[str, Any] | None = None
    height: int = 260
    log_switch: Mapping[str, Any] | None = None

    def payload(self) -> dict[str, Any]:
        """What the page's script needs."""
        return {
            "data": self.data,
            "layout": self.layout,
            "heat": self.heat,
            "height": self.height,
            "log": self.log_switch,
        }


@dataclass(frozen=True)
class ColourKey:
    """The colour scale that the heat maps of one signal share: `ticks` are (share of the width, label) pairs."""

    scale: str
    ticks: tuple[tuple[float, str], ...]
    broken: bool


@dataclass(frozen=True)
class Panel:
    """Figures that belong together, with the key to their colours."""

    figures: tuple[Figure, ...]
    note: str = ""
    key: ColourKey | None = None


@dataclass(frozen=True)
class Plot:
    """A registered plot: of the whole report (draw(report)) or of one layer signal (draw(report, signal))."""

    name: str
    title: str
    per_signal: bool
    draw: Callable[..., Panel | None]


PLOTS: Registry[Plot] = Registry("plot")


def plot(name: str, title: str) -> Callable[[Callable[[Report], Panel | None]], Callable[[Report], Panel | None]]:
    """Register a plot of the whole report; it returns None when the report holds nothing to draw."""

    def register(draw: Callable[[Report], Panel | None]) -> Callable[[Report], Panel | None]:
        PLOTS.add(name, Plot(name, title, False, draw))
        return draw

    return register


def signal_plot(
    name: str, title: str
) -> Callable[[Callable[[Report, str], Panel | None]], Callable[[Report, str], Panel | None]]:
    """Register a plot that is drawn once for each signal measured by layer."""

    def register(draw: Callable[[Report, str], Panel | None]) -> Callable[[Report, str], Panel | None]:
        PLOTS.add(name, Plot(name, title, True, draw))
        return draw

    return register
