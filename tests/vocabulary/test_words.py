from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgauge.errors import InputError
from streamgauge.vocabulary import (
    Finding,
    Join,
    Norm,
    NotAssessed,
    Place,
    Quantity,
    Reading,
    Readings,
    Tap,
    Verdict,
    Wiring,
    Word,
)

NUMBER = st.floats(allow_nan=False)
SCALE = st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(["learned", "learned-vector"])
TAP = st.none() | st.builds(Tap, path=st.text(), side=st.sampled_from(["input", "output"]), slot=st.integers(0, 9))
JOIN = st.builds(
    Join,
    index=st.integers(0, 2000),
    path=st.text(),
    placement=st.sampled_from(["pre", "post", "sandwich", "output", "parallel-pre", "pre+post", "none"]),
    norm=st.none() | st.sampled_from(["layernorm", "rmsnorm"]),
    eps=st.none() | st.floats(0, 1),
    skip_scale=SCALE,
    branch_scale=SCALE,
    stream_tap=TAP,
    branch_tap=TAP,
    out_tap=TAP,
)
NORM = st.builds(Norm, path=st.text(), kind=st.just("rmsnorm"), eps=st.floats(0, 1))
WIRING = st.builds(
    Wiring,
    joins=st.lists(JOIN, max_size=3).map(tuple),
    unjoined=st.lists(JOIN, max_size=2).map(tuple),
    final_norm=st.booleans(),
    norms=st.lists(NORM, max_size=2).map(tuple),
    unplaced=st.lists(st.text(), max_size=2).map(tuple),
)
QUANTITY = st.builds(Quantity, st.floats() | st.integers() | st.text() | st.none(), st.text())
LEAF = st.builds(
    Finding,
    code=st.text(),
    name=st.text(),
    severity=st.sampled_from(["info", "warning", "error"]),
    place=st.text(),
    message=st.text(),
    evidence=st.dictionaries(st.text(), QUANTITY, max_size=2),
)
FINDING = st.builds(lambda f, c: dataclasses.replace(f, consequences=tuple(c)), LEAF, st.lists(LEAF, max_size=2))
VERDICT = st.builds(
    Verdict,
    answer=st.sampled_from(["trains", "at risk", "will not train", "not assessed"]),
    probability=st.none() | st.floats(0, 1),
    max_lr=st.none() | st.floats(0, 1),
    max_lr_interval=st.none() | st.tuples(NUMBER, NUMBER),
)
WORD = WIRING | FINDING | VERDICT | st.builds(Reading, st.integers(0), st.text(), st.integers(-1), NUMBER)


@given(WORD)
def test_every_word_goes_to_json_and_back(word: Word) -> None:
    assert type(word).from_json(word.to_json()) == word
    json.loads(word.to_json(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_survive(value: float) -> None:
    back = Reading.from_json(Reading(3, "loss", -1, value).to_json())
    assert math.isnan(back.value) if math.isnan(value) else back.value == value
    assert Quantity(value).value == str(value)


def test_words_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Verdict("trains").answer = "at risk"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "where"),
    [("{", "top level"), ('{"joins": 3}', "joins"), ('{"jions": []}', "jions"), ("[]", "top level")],
)
def test_broken_json_names_the_place(text: str, where: str) -> None:
    with pytest.raises(InputError, match=where) as caught:
        Wiring.from_json(text)
    assert "\n" not in str(caught.value)


def test_sublayers_are_in_execution_order() -> None:
    wiring = Wiring(joins=(Join(0, "a", "pre"), Join(2, "c", "pre")), unjoined=(Join(1, "b", "none"),))
    assert [j.path for j in wiring.sublayers] == ["a", "b", "c"]
    assert wiring.placements == {"pre": 2}
    assert str(wiring) == "2 joins (2 pre), 1 sublayers without one, no final norm"


def test_readings_iterate_over_what_was_measured() -> None:
    places = (Place(0, "a"), Place(1, "b"))
    readings = Readings("stream_rms", np.array([[1.0, np.nan], [2.0, 3.0]]), np.array([0, 50]), places, "1")
    assert list(readings) == [
        Reading(0, "stream_rms", 0, 1.0),
        Reading(50, "stream_rms", 0, 2.0),
        Reading(50, "stream_rms", 1, 3.0),
    ]
    assert readings.last.tolist() == [2.0, 3.0]
    with pytest.raises(ValueError, match="stream_rms"):
        Readings("stream_rms", np.zeros((2, 2)), np.array([0]), places, "1")


def test_quantity_prints_its_unit() -> None:
    assert str(Quantity(1.23456, "nat")) == "1.235 nat"
    assert str(Quantity(3)) == "3"
    assert str(NotAssessed("W001", "missing-residual", "no wiring").name) == "missing-residual"


def test_a_further_skip_in_a_sum_is_no_place_of_its_own() -> None:
    """B2T: the block's input joins the sum of the ffn; there is nothing to measure there that the ffn does not show."""
    out, branch = Tap("b", "output"), Tap("ffn", "output")
    ffn = Join(1, "b", "post", kind="ffn", branch_tap=branch, out_tap=out)
    skip = Join(2, "b", "post", kind="other", out_tap=out)
    wiring = Wiring(joins=(Join(0, "a", "post", kind="attention"), ffn, skip))
    assert [j.index for j in wiring.places] == [0, 1]
    assert len(wiring.sublayers) == 3
