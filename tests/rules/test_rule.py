from __future__ import annotations

import pytest

from streamgauge.errors import InputError
from streamgauge.rules import RULES, CannotJudge, Evidence, find_rule, rule, series
from streamgauge.vocabulary import NotAssessed, Quantity, Wiring

TEXT = """One line.

What it does:
    a
Why it matters:
    b
Threshold:
    `limit`
How to fix:
    c
Example:
    d
Source:
    e
    f
"""


@pytest.fixture
def registry():
    """Take out again what a test registers."""
    before = set(RULES)
    yield RULES
    for name in set(RULES) - before:
        del RULES._entries[name]


def large(find, loss, vocab=None, *, limit=3.0):
    if loss.last[0] < 0:
        raise CannotJudge("a negative loss has no meaning here")
    if loss.last[0] > limit:
        yield find("warning", "run", f"large, vocab {vocab}", evidence={"loss": Quantity(1.0)}, cause="c", fix="f")


large.__doc__ = TEXT


def judged(registry, value, **thresholds):
    return rule("T901", "large")(large)(Evidence(readings={"loss": series("loss", [value])}), **thresholds)


def test_a_rule_gets_what_it_names_and_findings_get_code_and_source(registry):
    (finding,) = judged(registry, 5.0)
    assert (finding.code, finding.name, finding.message) == ("T901", "large", "large, vocab None")
    assert finding.source == "e f"


def test_threshold_in_place_of_the_default(registry):
    assert judged(registry, 5.0, limit=6.0) == ()


@pytest.mark.parametrize(
    ("thresholds", "text"),
    [({"limt": 6.0}, "did you mean 'limit'"), ({"limit": "6"}, "give a number"), ({"limit": True}, "give a number")],
)
def test_threshold_that_is_not_one(registry, thresholds, text):
    with pytest.raises(InputError, match=text):
        judged(registry, 5.0, **thresholds)


def test_cannot_judge_becomes_not_assessed(registry):
    assert judged(registry, -1.0) == NotAssessed("T901", "large", "a negative loss has no meaning here")


def test_optional_evidence_is_handed_on_when_there(registry):
    entry = rule("T901", "large")(large)
    (finding,) = entry(Evidence(readings={"loss": series("loss", [5.0])}, facts={"vocab": 7}))
    assert finding.message == "large, vocab 7"


def test_missing_evidence_says_where_it_comes_from(registry):
    entry = rule("T901", "large")(large)
    assert entry(Evidence()) == NotAssessed("T901", "large", "needs loss, which gauge.step(loss) records")


def test_empty_readings_are_missing():
    empty = series("loss", [])
    assert "loss" not in Evidence(readings={"loss": empty})


def with_signature(function, text=TEXT):
    function.__doc__ = text
    return function


@pytest.mark.parametrize(
    ("code", "function", "error"),
    [
        ("X001", large, "one letter of W, I, O, P, D, T and three digits"),
        ("T1", large, "three digits"),
        ("W001", large, "taken by missing-residual"),
        ("T901", with_signature(lambda loss: ()), "the first argument is `find`"),
        ("T901", with_signature(lambda find, los: ()), "did you mean 'loss'"),
        ("T901", with_signature(lambda find, loss=1: ()), "no default but None"),
        ("T901", with_signature(lambda find, loss: (), TEXT.replace("How to fix:", "")), "under 'How to fix:'"),
        ("T901", with_signature(lambda find, loss: (), "Two\n" + TEXT), "one summary line"),
    ],
)
def test_a_rule_that_breaks_the_contract_is_refused_at_import(registry, code, function, error):
    with pytest.raises(ValueError, match=error):
        rule(code, "broken")(function)
    assert "broken" not in RULES


def test_name_is_taken_once(registry):
    with pytest.raises(ValueError, match="twice"):
        rule("T901", "missing-residual")(large)


@pytest.mark.parametrize("wanted", ["W001", "w001", "missing-residual", " Missing-Residual "])
def test_find_by_code_or_name(wanted):
    assert find_rule(wanted).code == "W001"


def test_find_names_the_closest():
    with pytest.raises(InputError, match="did you mean 'missing-residual'"):
        find_rule("mising-residual")


def test_unknown_fact():
    with pytest.raises(InputError, match="unknown fact 'unigram_entrpy'; did you mean 'unigram_entropy'"):
        Evidence(Wiring(), {}, {"unigram_entrpy": 3.0})
