from __future__ import annotations

import pytest

from streamgauge.errors import InputError
from streamgauge.rules import RULES, Evidence, Examination, examine
from streamgauge.rules.order import arrange
from streamgauge.vocabulary import Finding


def made(name, severity="error"):
    return Finding(RULES[name].code, name, severity, "place", "message")


def tree(findings):
    return [(f.name, [c.name for c in f.consequences]) for f in arrange(findings)]


def test_root_first_and_its_consequences_under_it():
    found = [made("unigram-plateau"), made("vanishing-gradient", "warning"), made("missing-residual")]
    assert tree(found) == [("missing-residual", ["unigram-plateau", "vanishing-gradient"])]


def test_explanation_reaches_through_a_link_that_was_not_found():
    # missing-final-norm -> exploding-gradient -> non-finite, with the middle absent
    assert tree([made("non-finite"), made("missing-final-norm")]) == [("missing-final-norm", ["non-finite"])]


def test_a_chain_hangs_under_its_first_link():
    found = [made("unigram-plateau"), made("token-collapse"), made("missing-residual")]
    assert tree(found) == [("missing-residual", ["token-collapse", "unigram-plateau"])]


def test_hygiene_is_not_made_the_cause_of_a_failure():
    assert tree([made("unigram-plateau"), made("missing-residual", "info")]) == [
        ("unigram-plateau", []),
        ("missing-residual", []),
    ]


def test_severity_goes_before_family_and_family_before_code():
    found = [made("non-finite"), made("missing-final-norm", "warning"), made("unigram-plateau")]
    assert [f.name for f in arrange(found)] == ["unigram-plateau", "non-finite", "missing-final-norm"]


def test_nothing_is_lost_or_doubled():
    names = list(RULES)
    levels = ["info", "warning", "error"]
    for shift in range(3):
        found = [made(name, levels[(i + shift) % 3]) for i, name in enumerate(names)]
        arranged = arrange(found)
        assert sorted([f.name for f in arranged] + [c.name for f in arranged for c in f.consequences]) == sorted(names)


def test_no_residual_run_has_one_finding(case):
    evidence = Evidence(
        case.stack(joined=False),
        {"token_cosine": case.COLLAPSED, "loss": case.STALLED, **case.ratio(1e-6)},
        case.ENTROPY,
    )
    result = examine(evidence)
    assert [f.name for f in result.findings] == ["missing-residual"]
    assert [c.name for c in result.findings[0].consequences] == [
        "token-collapse",
        "unigram-plateau",
        "vanishing-gradient",
    ]
    assert result.worst == "error"
    assert result.findings[0].place == "sublayers 0-23 (blocks.0.attention to blocks.11.ffn)"


def test_healthy_run_passes_all_that_its_evidence_lets_judge(case):
    readings = {"token_cosine": case.DISTINCT, "loss": case.TRAINS, **case.ratio(1.1)}
    result = examine(Evidence(case.stack(), readings, case.ENTROPY))
    assert result.findings == ()
    assert result.worst is None
    assert set(result.passed) | {n.name for n in result.not_assessed} == set(RULES)
    assert {"missing-residual", "token-collapse", "unigram-plateau", "vanishing-gradient"} <= set(result.passed)


def test_select_and_ignore(case):
    evidence = Evidence(case.stack(joined=False), {"token_cosine": case.COLLAPSED})
    assert [f.name for f in examine(evidence, select=["token-collapse"]).findings] == ["token-collapse"]
    assert [f.name for f in examine(evidence, select=["W", "I004"], ignore=["w001"]).findings] == ["token-collapse"]
    assert examine(evidence, select=["W"]).passed + examine(evidence, select=["W"]).not_assessed != ()


@pytest.mark.parametrize("option", ["select", "ignore"])
def test_unknown_names(option):
    with pytest.raises(InputError, match="did you mean 'token-collapse'"):
        examine(Evidence(), **{option: ["token-colapse"]})
    with pytest.raises(InputError, match="give a list"):
        examine(Evidence(), **{option: "W001"})


def test_thresholds_by_rule(case):
    evidence = Evidence(None, {"loss": case.STALLED}, case.ENTROPY)
    assert examine(evidence, select=["D003"]).findings
    assert not examine(evidence, select=["D003"], thresholds={"unigram-plateau": {"margin": -0.5}}).findings
    with pytest.raises(InputError, match="did you mean 'margin'"):
        examine(evidence, thresholds={"D003": {"margn": 1}})
    with pytest.raises(InputError, match="unknown rule"):
        examine(evidence, thresholds={"D999": {"margin": 1}})


def test_json_there_and_back(case):
    result = examine(Evidence(case.stack(joined=False), {"token_cosine": case.COLLAPSED, "loss": case.WITH_NAN}))
    assert result.findings
    assert result.not_assessed
    assert Examination.from_json(result.to_json()) == result


def test_facts_that_a_run_saved_are_never_taken_for_built_ones():
    """A gauge saves the number of parameters under the name of the table that rules ask for."""

    class Saved:
        facts = {"parameters": 12_345, "vocab": 256, "model": "Decoder"}  # noqa: RUF012
        wiring, signals = None, {}

    evidence = Evidence.of_run(Saved(), unigram_entropy=3.1)
    assert dict(evidence.facts) == {"vocab": 256, "unigram_entropy": 3.1}
