"""No rule may fall over a number that a broken run can hold."""

from __future__ import annotations

import math

import pytest

from streamgauge.gauge import SIGNALS
from streamgauge.rules import Evidence, examine, series
from streamgauge.vocabulary import Join, Norm, Wiring

PLACEMENTS = ("pre", "post", "sandwich", "output", "none")
EXTREMES = (0.0, 5e-324, 1e-320, 1e-160, 1e160, 1.7e308, math.inf, -math.inf, math.nan)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("value", EXTREMES)
def test_every_rule_survives_extreme_readings(value: float, placement: str) -> None:
    kinds = ("attention", "ffn")
    norm, eps = (None, None) if placement == "none" else ("layernorm", 1e-5)
    joins = tuple(Join(i, f"h.{i}", placement, norm, eps, kind=kinds[i % 2]) for i in range(28))
    norms = tuple(Norm(f"n.{i}", "layernorm", 1e-5, 16) for i in range(28))
    readings = {}
    for name, signal in SIGNALS.items():
        rows = [[value] * 28] * 120 if signal.level == "place" else [value] * 120
        readings[name] = series(name, rows, unit=signal.unit)
    for phase in ("init", "rehearsal", "run"):
        facts = {"phase": phase, "vocab": 256, "unigram_entropy": 3.1}
        examine(Evidence(Wiring(joins, norms=norms), readings, facts))
