from __future__ import annotations

import math

import pytest

from streamgauge.rules import RULES, Evidence, series
from streamgauge.rules.harm import ENOUGH_STEPS, warming_up
from streamgauge.vocabulary import NotAssessed


def state(facts=None, **readings):
    return Evidence(readings=readings, facts=facts or {}).harm.state


def test_no_loss_and_few_steps_are_unknown(case):
    assert state() == "unknown"
    assert state(loss=series("loss", [5.5])) == "unknown"
    assert state(case.ENTROPY, loss=case.losses(5.5, 5.5, steps=ENOUGH_STEPS)) == "unknown"
    assert state(case.ENTROPY, loss=case.losses(5.5, 5.5, steps=ENOUGH_STEPS + 1)) == "measured"


def test_states_follow_the_outcome(case):
    assert state(case.ENTROPY, loss=case.STALLED) == "measured"
    assert state(case.ENTROPY, loss=case.TRAINS) == "absent"
    assert state(case.ENTROPY, loss=case.losses(5.5, 3.0, rate=0.004)) == "unknown"


def test_nan_is_harm_at_once():
    harm = Evidence(readings={"loss": series("loss", [5.5, math.nan], steps=[0, 50])}).harm
    assert harm.measured
    assert harm.evidence["step"].value == 50
    assert harm.severity("info") == "error"


def test_training_entropy_serves_the_training_loss(case):
    loss = case.losses(5.5, 3.10)
    apart = {"unigram_entropy": 3.00, "unigram_entropy_train": 3.30}
    checked = series("val_loss", [3.10], steps=[200])
    assert state(apart, loss=loss) == "absent"
    assert state(apart, loss=loss, val_loss=checked) == "measured"


@pytest.mark.parametrize(
    ("rates", "expected"),
    [([k / 100 for k in range(100)], True), ([1e-3] * 100, False), ([min(1.0, k / 50) for k in range(100)], False)],
)
def test_warming_up(rates, expected):
    assert warming_up(series("lr", rates)) == expected


def test_plateau_during_warm_up_is_not_judged(case):
    rising = series("lr", [1e-6 * k for k in range(200)])
    assert state(case.ENTROPY, loss=case.STALLED, lr=rising) == "unknown"
    answer = RULES["unigram-plateau"](Evidence(None, {"loss": case.STALLED, "lr": rising}, case.ENTROPY))
    assert isinstance(answer, NotAssessed)
    assert "warming up" in answer.reason


def test_plateau_needs_steps(case):
    answer = RULES["unigram-plateau"](Evidence(None, {"loss": case.losses(5.5, 3.2, steps=60)}, case.ENTROPY))
    assert isinstance(answer, NotAssessed)
    assert "59 steps are too few" in answer.reason
