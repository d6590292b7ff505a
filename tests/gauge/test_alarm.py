from __future__ import annotations

import math
import random

import pytest

from streamgauge.gauge.alarm import Alarms, first_non_finite


def tripped(values: list[float], signal: str = "loss") -> list[int]:
    alarms = Alarms()
    return [step for step, value in enumerate(values) if alarms.check(step, signal, value) is not None]


def test_a_falling_noisy_loss_raises_no_alarm() -> None:
    draw = random.Random(0)
    assert tripped([6 * math.exp(-step / 200) + draw.gauss(0, 0.05) + 2 for step in range(1000)]) == []


@pytest.mark.parametrize("signal", ["loss", "grad_norm"])
def test_a_jump_is_noticed_at_once_and_once(signal: str) -> None:
    draw = random.Random(1)
    values = [1 + draw.gauss(0, 0.01) for _ in range(30)]
    assert tripped([*values, 4.0, 4.0, 1.0], signal) == [30]


def test_a_gradient_norm_may_double() -> None:
    assert tripped([1.0] * 20 + [1.9], "grad_norm") == []
    assert tripped([1.0] * 20 + [2.1], "grad_norm") == [20]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_not_finite_is_noticed_from_the_first_step_on_and_again_after_recovery(value: float) -> None:
    assert tripped([value, value, 1.0, value, value]) == [0, 3]


def test_the_alarm_says_what_was_usual() -> None:
    alarms = Alarms()
    for step in range(10):
        alarms.check(step, "loss", 2.0)
    alarm = alarms.check(10, "loss", 9.0)
    assert alarm is not None
    assert (alarm.step, alarm.value, alarm.usual, alarm.why) == (10, 9.0, 2.0, "jump")


def test_going_forward_the_first_place_is_the_cause() -> None:
    rows = [
        (7, "stream_rms", 0, 1.0),
        (7, "stream_rms", 2, math.nan),
        (7, "branch_ratio", 1, math.inf),
        (7, "grad_rms", 0, math.nan),
    ]
    assert first_non_finite(rows) == {
        "step": 7,
        "signal": "branch_ratio",
        "place": 1,
        "value": "inf",
        "flow": "forward",
    }


def test_going_backward_the_last_place_is_the_cause() -> None:
    rows = [(7, "grad_rms", place, math.nan if place < 3 else 1.0) for place in range(5)]
    found = first_non_finite(rows)
    assert found is not None
    assert (found["place"], found["flow"]) == (2, "backward")


def test_a_finite_step_has_no_cause() -> None:
    assert first_non_finite([(0, "stream_rms", 0, 1.0), (0, "loss", -1, math.nan)]) is None
