from __future__ import annotations

import math

import pytest

from streamgauge.rules import RULES, Evidence, series

nan, inf = math.nan, math.inf


def first(**readings):
    found = RULES["non-finite"](Evidence(readings={k: series(k, v) for k, v in readings.items()}))
    assert isinstance(found, tuple)
    return (found[0].place, found[0].evidence["step"].value) if found else None


@pytest.mark.parametrize("bad", [nan, inf, -inf])
def test_whole_run_signals(bad):
    assert first(loss=[3.0, bad]) == ("run", 1)
    assert first(loss=[3.0, 2.9, bad], grad_norm=[1.0, bad, bad]) == ("run", 1)
    assert first(loss=[3.0, 2.0]) is None


def test_forward_place_comes_before_the_loss_of_the_same_step():
    assert first(loss=[3.0, nan], stream_rms=[[1.0, 1.0, 1.0], [1.0, nan, nan]]) == ("sublayer 1 (1)", 1)


def test_gradients_are_searched_from_the_end():
    assert first(loss=[3.0, 3.0], grad_rms=[[1.0, 1.0, 1.0], [nan, nan, 1.0]]) == ("sublayer 1 (1)", 1)


def test_earlier_step_wins():
    assert first(loss=[3.0, 3.0, nan], grad_rms=[[1.0, 1.0], [inf, 1.0], [nan, nan]]) == ("sublayer 0 (0)", 1)


def test_a_place_that_is_never_measured_is_no_fault():
    assert first(loss=[3.0, 2.0], stream_rms=[[nan, 1.0, nan], [nan, 1.0, nan]]) is None


def test_nan_at_the_very_first_step_is_placed_where_it_begins():
    assert first(loss=[nan], stream_rms=[[1.0, nan, 1.0, nan, nan]]) == ("sublayer 3 (3)", 0)
    assert first(loss=[nan], stream_rms=[[nan, nan]]) == ("run", 0)
    assert first(grad_norm=[nan], grad_rms=[[nan, nan, nan, 1.0, nan, 1.0]]) == ("sublayer 2 (2)", 0)


def test_a_signal_that_starts_late_is_no_fault():
    assert first(grad_rms=[[nan, nan], [1.0, 1.0]], loss=[3.0, 2.0]) is None
