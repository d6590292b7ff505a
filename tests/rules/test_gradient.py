from __future__ import annotations

import math

import pytest

from streamgauge.rules import RULES, Evidence, series
from streamgauge.rules.dynamics.flow import flow
from streamgauge.rules.harm import Harm
from streamgauge.vocabulary import NotAssessed


def found(name, evidence):
    answer = RULES[name](evidence)
    return answer if isinstance(answer, NotAssessed) else next(iter(answer), None)


@pytest.mark.parametrize(
    ("name", "ratio", "init", "stalled", "trains"),
    [
        ("vanishing-gradient", 0.8, None, None, None),
        ("vanishing-gradient", 0.01, "info", "warning", "info"),
        ("vanishing-gradient", 1e-6, "warning", "error", "info"),
        ("vanishing-gradient", 0.0, "error", "error", "error"),
        ("exploding-gradient", 7.0, None, None, None),
        ("exploding-gradient", 1e3, "info", "warning", "info"),
        ("exploding-gradient", 1e6, "warning", "error", "info"),
    ],
)
def test_levels(case, name, ratio, init, stalled, trains):
    total = {"retention_total": series("retention_total", [ratio])}
    readings = case.ratio(ratio) if ratio else {**total, "grad_rms": series("grad_rms", [[0.0, 1.0]])}
    readings["stream_rms"] = series("stream_rms", [[1.0] * readings["grad_rms"].values.shape[1]])
    for loss, expected in ((None, init), (case.STALLED, stalled), (case.TRAINS, trains)):
        given = {**readings, "loss": loss} if loss is not None else readings
        finding = found(name, Evidence(case.stack("post"), given, case.ENTROPY))
        assert (finding and finding.severity) == expected


def test_growth_of_the_stream_is_no_explosion():
    """Pre-LN, K unit increments on unit embeddings: S_k = 1 + k and g_k ~ 1/sqrt(S_k) (identity A0): e = 1."""
    rms = [math.sqrt(1 + k) for k in range(1, 200)]
    gradient = [1 / r for r in rms]
    raw = series("retention_total", [gradient[0] / gradient[-1]])
    measured = flow(raw, series("grad_rms", [gradient]), series("stream_rms", [rms]), Harm("unknown", ""))
    assert measured.ratio == pytest.approx(1.0)
    assert measured.scaled
    assert raw.last[0] == pytest.approx(10.0)


def test_raw_ratio_stands_in_with_a_wider_band():
    for ratio, name in ((2e-3, None), (5e-4, "vanishing-gradient"), (900.0, None), (1100.0, "exploding-gradient")):
        evidence = Evidence(readings={"retention_total": series("retention_total", [ratio])})
        for rule in ("vanishing-gradient", "exploding-gradient"):
            assert (found(rule, evidence) is not None) == (rule == name)


def test_worst_join_is_named_without_the_first(case):
    retention = series("retention", [[36.0, 0.9, 0.01, 0.8]], paths=["a", "b", "c", "d"])
    evidence = Evidence(None, {**case.ratio(1e-3), "retention": retention})
    assert found("vanishing-gradient", evidence).place == "sublayer 2 (c)"
    evidence = Evidence(None, {**case.ratio(1e3), "retention": retention})
    assert found("exploding-gradient", evidence).place == "sublayer 1 (b)"


def test_surge_of_the_gradient_norm_needs_a_symptom(case):
    norm = series("grad_norm", [1.0] * 100 + [500.0] * 100)
    loss = series("loss", [*(5.5 - 0.02 * k for k in range(100)), *([7.0] * 100)])
    evidence = Evidence(case.stack(), {**case.ratio(1.0), "grad_norm": norm, "loss": loss})
    finding = found("exploding-gradient", evidence)
    assert (finding.severity, finding.evidence["grad_norm_growth"].value) == ("warning", 500.0)
    evidence = Evidence(case.stack(), {**case.ratio(1.0), "grad_norm": norm, "loss": case.TRAINS}, case.ENTROPY)
    assert found("exploding-gradient", evidence) is None


def test_nothing_finite_is_not_assessed():
    evidence = Evidence(readings={"retention_total": series("retention_total", [math.nan])})
    assert "no finite" in found("vanishing-gradient", evidence).reason
    assert "no finite" in found("exploding-gradient", evidence).reason
