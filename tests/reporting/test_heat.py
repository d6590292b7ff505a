from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from streamgauge.reporting import Report
from streamgauge.reporting.plots.heat import BROKEN, CELLS, NOTHING, TOP, layer_by_step
from streamgauge.vocabulary import Place, Readings


def readings(signal: str, values: object) -> Readings:
    array = np.array(values, dtype=np.float64)
    places = tuple(Place(i, f"p{i}") for i in range(array.shape[1]))
    return Readings(signal, array, np.arange(len(array)) * 10, places, "1")


def decode(heat: Mapping[str, Any]) -> np.ndarray[Any, np.dtype[np.uint16]]:
    flat = np.frombuffer(base64.b64decode(heat["codes"]), dtype="<u2")
    return flat.reshape(len(heat["places"]), len(heat["steps"]))


def heat_of(report: Report, signal: str) -> Mapping[str, Any]:
    panel = layer_by_step(report, signal)
    assert panel is not None
    heat = panel.figures[0].heat
    assert heat is not None
    return heat


@pytest.mark.parametrize("signal", ["grad_rms", "token_cosine", "cosine_excess", "never_heard_of"])
def test_codes_give_the_values_back(alone: Callable[..., Report], signal: str) -> None:
    rng = np.random.default_rng(0)
    table = readings(signal, np.exp(4 * rng.standard_normal((6, 5))))
    heat = heat_of(alone(readings={signal: table}), signal)
    raw = heat["low"] + decode(heat) / TOP * heat["width"]
    back = 10**raw if heat["log"] else raw
    tolerance = {"rel": 1e-3} if heat["log"] else {"abs": heat["width"] / TOP}
    assert back.T.ravel() == pytest.approx(table.values.ravel(), **tolerance)
    assert heat["steps"] == heat["until"] == [0, 10, 20, 30, 40, 50]


def test_what_is_no_number_has_its_own_code(alone: Callable[..., Report]) -> None:
    table = readings("grad_rms", [[math.nan, 1.0, 1.0], [math.nan, 0.0, 2.0], [math.nan, math.inf, math.nan]])
    heat = heat_of(alone(readings={"grad_rms": table}), "grad_rms")
    codes = decode(heat).T
    assert (heat["places"], heat["at"]) == (["1:p1", "2:p2"], [1, 2])  # nothing is measured at place 0
    assert codes[1, 0] == NOTHING
    assert codes[2].tolist() == [BROKEN, BROKEN]
    assert (codes[:2, 1] <= TOP).all()


def test_one_broken_entry_among_ten_thousand_steps_stays_visible(alone: Callable[..., Report]) -> None:
    values = np.ones((10_000, 2))
    values[6_543, 1] = np.inf
    heat = heat_of(alone(readings={"stream_rms": readings("stream_rms", values)}), "stream_rms")
    codes = decode(heat)
    assert codes.shape == (2, 400)
    row, column = np.argwhere(codes == BROKEN)[0]
    assert (codes == BROKEN).sum() == 1
    assert row == 1
    assert heat["steps"][column] <= 65_430 <= heat["until"][column]


def test_arms_share_one_scale_and_a_neutral_value_stands_in_its_middle(canned: Report) -> None:
    panel = layer_by_step(canned, "retention")
    assert panel is not None
    scales = {(f.heat["zmin"], f.heat["zmax"], f.heat["scale"]) for f in panel.figures if f.heat}
    assert len(scales) == 1
    low, high, palette = scales.pop()
    assert low == pytest.approx(-high)  # log10 of the neutral value 1 is 0
    assert palette == "div"
    assert panel.key is not None
    assert panel.key.ticks[1] == (0.5, "1")


def test_a_report_of_many_deep_arms_stays_within_its_cells(canned: Report) -> None:
    deep = {name: readings(name, np.ones((500, 600))) for name in ("stream_rms", "grad_rms", "cosine")}
    report = replace(canned, arms=tuple(replace(canned.arms[0], readings=deep) for _ in range(20)))
    total = sum(decode(heat).size for s in deep for p in [layer_by_step(report, s)] if p for f in p.figures
                for heat in [f.heat] if heat)  # fmt: skip
    assert total <= CELLS


def test_nothing_to_draw(alone: Callable[..., Report]) -> None:
    assert layer_by_step(alone(readings={}), "stream_rms") is None
    empty = Readings("stream_rms", np.empty((0, 2)), np.empty(0, dtype=np.int64), (Place(0, "a"), Place(1, "b")), "1")
    assert layer_by_step(alone(readings={"stream_rms": empty}), "stream_rms") is None
    nothing = readings("stream_rms", [[math.nan, math.nan]])
    assert (decode(heat_of(alone(readings={"stream_rms": nothing}), "stream_rms")) == BROKEN).all()
