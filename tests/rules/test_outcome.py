from __future__ import annotations

import math

import numpy as np
import pytest

from streamgauge.errors import InputError
from streamgauge.rules import Outcome, degraded, outcome, series

H = 3.12


def run(curve):
    noise = 0.02 * np.random.default_rng(1).standard_normal(len(curve))
    return series("loss", (np.asarray(curve) + noise).tolist(), unit="nat")


k = np.arange(400)


@pytest.mark.parametrize(
    ("curve", "label"),
    [
        (2.0 + 3.5 * np.exp(-k / 60), "trains"),
        (3.15 + 2.4 * np.exp(-k / 40), "stalled"),  # approaches the unigram level and stays
        (5.54 - 0.001 * k, "slow"),  # a learning rate far too low: a straight line
        (3.02 + 2.5 * np.exp(-k / 150), "slow"),  # would be there within as many steps again
        (np.full(400, 5.54), "stalled"),
        (np.concatenate([2.5 + 3 * np.exp(-k[:200] / 40), np.linspace(2.6, 7.0, 200)]), "diverged"),
        (np.concatenate([2.5 + 3 * np.exp(-k[:200] / 40), np.full(200, 4.0)]), "stalled"),  # a spike without return
    ],
)
def test_labels(curve, label):
    assert outcome(run(curve), unigram_entropy=H).label == label


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_diverged(bad):
    end = outcome(series("loss", [5.5, 4.0, bad, 3.0]), unigram_entropy=H)
    assert (end.label, end.final_loss) == ("diverged", None)
    assert "step 2" in end.reason


def test_validation_loss_is_the_final_loss():
    curve = run(2.0 + 3.5 * np.exp(-k / 60))
    for checked, label in (([4.0, 3.3], "slow"), ([3.2, 3.3], "stalled"), ([4.0, 2.9], "trains")):
        end = outcome(curve, val_loss=series("val_loss", checked, steps=[200, 400]), unigram_entropy=H)
        assert (end.label, end.final_loss) == (label, checked[-1])


def test_without_entropy_the_initial_loss_is_the_constant_predictor():
    assert outcome(run(np.full(400, 3.47))).label == "stalled"
    assert outcome(run(3.3 + 0.17 * np.exp(-k / 20))).label == "undecided", "token frequencies may give as much"
    assert outcome(run(1.0 + 2.5 * np.exp(-k / 20))).label == "trains", "less than half: no constant predictor's"


def test_final_loss_is_the_mean_of_the_last_tenth():
    curve = series("loss", [5.0] * 90 + [2.0, 4.0] * 5)
    assert outcome(curve, unigram_entropy=H + 1).final_loss == pytest.approx(3.0)


def test_noise_on_a_plateau_is_not_divergence():
    for seed in range(20):
        noise = 0.03 * np.random.default_rng(seed).standard_normal(300)
        assert outcome(series("loss", (3.47 + noise).tolist()), unigram_entropy=math.log(32)).label == "stalled"


def test_one_step_is_no_run():
    with pytest.raises(InputError, match="at least two losses"):
        outcome(series("loss", [5.5]))


def test_degraded_is_five_percent_over_the_best():
    fine, worse = Outcome("trains", "", 2.09), Outcome("trains", "", 2.11)
    assert degraded(fine, 2.0) == fine
    assert degraded(worse, 2.0).label == "degraded"
    assert "6 %" in degraded(Outcome("trains", "", 2.12), 2.0).reason
    stalled = Outcome("stalled", "", 3.2)
    assert degraded(stalled, 2.0) == stalled


def test_json_there_and_back():
    end = outcome(run(np.full(400, 3.47)))
    assert Outcome.from_json(end.to_json()) == end
