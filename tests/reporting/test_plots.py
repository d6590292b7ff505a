"""The contract of every registered plot."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from streamgauge.errors import InputError
from streamgauge.reporting import PLOTS, Panel, Report
from streamgauge.reporting.plots.depth import depth_profile
from streamgauge.reporting.plots.lines import log_ticks
from streamgauge.reporting.plots.loss import loss_curves
from streamgauge.vocabulary import RUN, Readings


def panels(name: str, report: Report) -> list[Panel]:
    entry = PLOTS[name]
    signals = sorted({s for arm in report.arms for s in arm.readings}) if entry.per_signal else []
    drawn = [entry.draw(report, signal) for signal in signals] if entry.per_signal else [entry.draw(report)]
    return [panel for panel in drawn if panel is not None]


def plain_colours(value: Any) -> Any:
    if isinstance(value, str):
        return "#123456" if value.startswith("var(") else value
    if isinstance(value, dict):
        return {key: plain_colours(entry) for key, entry in value.items()}
    return [plain_colours(entry) for entry in value] if isinstance(value, list | tuple) else value


def ruined(report: Report, value: float) -> Report:
    arms = tuple(
        replace(a, readings={n: replace(r, values=np.full_like(r.values, value)) for n, r in a.readings.items()})
        for a in report.arms
    )
    return replace(report, arms=arms)


def single_step(report: Report) -> Report:
    arms = tuple(
        replace(a, readings={n: replace(r, values=r.values[:1], steps=r.steps[:1]) for n, r in a.readings.items()})
        for a in report.arms
    )
    return replace(report, arms=arms)


@pytest.mark.parametrize("name", PLOTS)
def test_figures_are_what_plotly_takes(name: str, canned: Report) -> None:
    found = panels(name, canned)
    assert found
    for panel in found:
        for figure in panel.figures:
            go.Figure(plain_colours(list(figure.data)), plain_colours(dict(figure.layout)))  # raises on a wrong name


@pytest.mark.parametrize("name", PLOTS)
@pytest.mark.parametrize(
    "value", [math.nan, math.inf, 0.0, -1.0, 1e300, 1.7e308, -1.7e308, 1e-320, 5e-324, sys.float_info.max]
)
def test_hard_values_give_strict_json(name: str, value: float, canned: Report) -> None:
    for panel in panels(name, ruined(canned, value)):
        json.dumps([figure.payload() for figure in panel.figures], allow_nan=False)


@pytest.mark.parametrize("name", PLOTS)
@pytest.mark.parametrize("value", [1.7e308, -1.7e308, 1e-320, 5e-324, sys.float_info.max])
@pytest.mark.parametrize("other", [None, 1.0, -1.7e308, 1.7e308, 1e-320])
def test_values_at_both_ends_give_strict_json(name: str, value: float, other: float | None, canned: Report) -> None:
    report = ruined(canned, value)
    for arm in report.arms:
        for readings in arm.readings.values():
            if other is not None:
                readings.values[1::2] = other
    for panel in panels(name, report):
        json.dumps([figure.payload() for figure in panel.figures], allow_nan=False)


@pytest.mark.parametrize("name", PLOTS)
def test_one_step_is_drawn(name: str, canned: Report) -> None:
    assert panels(name, single_step(canned))


@pytest.mark.parametrize("name", PLOTS)
def test_no_readings_no_plot(name: str, alone: Callable[..., Report]) -> None:
    entry, report = PLOTS[name], alone(readings={})
    assert (entry.draw(report, "stream_rms") if entry.per_signal else entry.draw(report)) is None


def test_a_misspelt_plot_gets_the_closest_name() -> None:
    with pytest.raises(InputError, match="did you mean 'loss-curves'"):
        PLOTS["loss-curve"]


def test_the_loss_shows_the_unigram_entropy_and_every_arm(canned: Report) -> None:
    panel = loss_curves(canned)
    assert panel is not None
    names = [trace.get("name") for trace in panel.figures[0].data if trace.get("showlegend", True)]
    assert names == ["none", "post", "pre", "b2t", "unigram entropy 3.170"]
    assert "none: validation loss" in panel.figures[0].text


def test_profiles_of_unequal_depth_are_laid_over_one_another(make: Callable[..., Report]) -> None:
    shallow, deep = make(layers=2, steps=10, every=5), make(layers=6, steps=10, every=5)
    panel = depth_profile(replace(shallow, arms=(shallow.arms[2], deep.arms[2])), "grad_rms")
    assert panel is not None
    assert {(trace["x"][0], trace["x"][-1]) for trace in panel.figures[0].data} == {(0.0, 1.0)}
    alike = depth_profile(shallow, "grad_rms")
    assert alike is not None
    assert {trace["x"][-1] for trace in alike.figures[0].data} == {3.0}


def test_the_loss_marks_where_it_stopped_being_finite(alone: Callable[..., Report]) -> None:
    values = np.array([[5.0], [4.0], [math.nan], [math.inf]])
    report = alone(readings={"loss": Readings("loss", values, np.array([0, 10, 20, 30]), (RUN,), "nat")})
    panel = loss_curves(report)
    assert panel is not None
    cross = [t for t in panel.figures[0].data if t.get("marker", {}).get("symbol") == "x"]
    assert [(t["x"], t["y"]) for t in cross] == [([20.0], [4.0])]
    assert "Cross" in panel.note


def test_a_loss_over_decades_has_a_log_axis(alone: Callable[..., Report]) -> None:
    values = np.array([[500.0], [4.0]])
    report = alone(readings={"loss": Readings("loss", values, np.array([0, 1]), (RUN,), "nat")})
    panel = loss_curves(report)
    assert panel is not None
    assert panel.figures[0].layout["yaxis"]["type"] == "log"


def test_long_series_are_thinned(make: Callable[..., Report]) -> None:
    panel = loss_curves(make(layers=1, steps=20_000, every=1_000))
    assert panel is not None
    assert max(len(trace["x"]) for trace in panel.figures[0].data) <= 401


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (1e-12, 1.0, [1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 1.0]),
        (0.5, 30.0, [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0]),
    ],
)
def test_log_ticks(low: float, high: float, ticks: list[float]) -> None:
    assert log_ticks([low, high])["tickvals"] == ticks


def test_log_ticks_leave_a_narrow_range_to_plotly() -> None:
    assert log_ticks([0.9, 1.1]) == {}
    assert log_ticks([0.0]) == {}
