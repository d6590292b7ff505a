from __future__ import annotations

import math

import pytest

from streamgauge.rules import series
from streamgauge.rules.harm import Harm
from streamgauge.rules.places import at_end, end_of_stack, regime, site, span, telling
from streamgauge.vocabulary import Join, Wiring


@pytest.mark.parametrize(
    ("indices", "text"),
    [
        ([3], "sublayer 3"),
        (range(48), "sublayers 0-47"),
        ([7, 0, 1, 2, 3], "sublayers 0-3, 7"),
        ([0, 2], "sublayers 0, 2"),
    ],
)
def test_span(indices, text):
    assert span(indices) == text


def test_site_without_paths():
    assert site([Join(4, "", "pre")]) == "sublayer 4"
    assert site([Join(4, "x", "pre")]) == "sublayer 4 (x)"


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        ("pre", "pre"),
        ("sandwich", "pre"),
        ("parallel-pre", "pre"),
        ("post", "post"),
        ("pre+post", "post"),
        ("none", "bare"),
    ],
)
def test_regime(case, placement, expected):
    assert regime(case.stack(placement)) == expected


def test_regime_of_other_stacks(case):
    assert regime(case.stack(joined=False)) == "no residual"
    assert regime(Wiring()) == "unrecognised"
    mixed = Wiring((*case.stack("post").joins[:6], *case.stack("pre").joins[6:]))
    assert regime(mixed) == "pre"


def test_last_finite_readings():
    table = series("token_cosine", [[0.1, 0.2, 0.3], [0.4, 0.5, math.nan], [math.nan] * 3])
    assert at_end(table)[:2].tolist() == [0.4, 0.5]
    assert end_of_stack(at_end(table)) == 0.5
    assert math.isnan(end_of_stack(at_end(series("token_cosine", [[math.nan]]))))


@pytest.mark.parametrize(("state", "expected"), [("unknown", 0.3), ("measured", 0.9), ("absent", 0.9)])
def test_a_run_that_has_only_begun_is_judged_at_initialization(state, expected):
    table = series("token_cosine", [[0.2, 0.3], [0.8, 0.9]])
    assert end_of_stack(telling(table, Harm(state, ""))) == expected
