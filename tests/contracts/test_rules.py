"""Every rule keeps the contract: stable code, whole text, units, and two examples."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from streamgauge.rules import FAMILIES, RULES, Evidence, catalogue, examine, explain
from streamgauge.rules.evidence import SIGNALS
from streamgauge.rules.order import RANK, explained_by
from streamgauge.rules.text import HEADINGS
from streamgauge.vocabulary import Finding, NotAssessed

EXAMPLES = runpy.run_path(str(Path(__file__).parents[1] / "rules" / "examples.py"))["EXAMPLES"]
NAMES = list(RULES)
FOLDERS = {"W": "structure", "I": "initialization", "O": "optimizer", "P": "precision", "D": "data", "T": "dynamics"}

# Codes are printed in reports, ignore lists and SARIF files of users: one that has been published stays.
CODES = {
    "W001": "missing-residual",
    "W002": "partial-residual",
    "W003": "deep-post-norm",
    "W004": "missing-final-norm",
    "W005": "doubled-final-norm",
    "W006": "mixed-placement",
    "W007": "residual-from-normed",
    "W008": "partial-norm",
    "W009": "norm-axis",
    "W010": "narrow-norm",
    "W011": "unused-norm",
    "W012": "norm-flag-ignored",
    "W013": "batch-norm-over-padding",
    "W014": "output-norm-without-qk-norm",
    "W015": "wrong-depth-scale",
    "W016": "identity-layer",
    "I001": "unscaled-residual-init",
    "I002": "stream-explodes",
    "I003": "stream-vanishes",
    "I004": "token-collapse",
    "I005": "embedding-scale",
    "I006": "large-init",
    "I007": "dead-parameters",
    "I008": "initial-loss",
    "I009": "norm-nullspace",
    "O001": "lr-too-high",
    "O002": "lr-too-low",
    "O003": "post-norm-without-warmup",
    "O004": "warmup-too-slow",
    "O005": "decay-on-gains",
    "O006": "adam-eps",
    "O007": "stale-beta2",
    "O008": "always-clipping",
    "P001": "eps-underflow",
    "P002": "eps-dominates",
    "P003": "half-overflow",
    "P004": "lost-updates",
    "P005": "half-norm-statistics",
    "D001": "fully-masked-row",
    "D002": "target-leak",
    "D003": "unigram-plateau",
    "T001": "vanishing-gradient",
    "T002": "exploding-gradient",
    "T003": "layer-collapse",
    "T004": "attention-logit-growth",
    "T005": "attention-entropy-collapse",
    "T006": "loss-spike",
    "T007": "non-finite",
    "T008": "massive-activations",
    "T009": "redundant-layer",
    "T010": "stable-rank-drop",
}

HABITS = {"decay-on-gains"}
"""Rules on matters of hygiene: never more than info, so that the healthy example has to yield nothing."""


def findings(name: str, evidence: Evidence) -> tuple[Finding, ...]:
    answer = RULES[name](evidence)
    assert not isinstance(answer, NotAssessed), answer.reason
    return answer


def test_published_codes_keep_their_names():
    assert {r.code: r.name for r in RULES.values()} == CODES


def test_every_rule_has_examples_and_every_example_a_rule():
    assert set(EXAMPLES) == set(RULES)


@pytest.mark.parametrize("name", NAMES)
def test_finds_the_sick_and_passes_the_healthy(name):
    sick, healthy = EXAMPLES[name]
    levels = ["info"] if name in HABITS else ["warning", "error"]
    assert [f.severity in levels for f in findings(name, sick)] == [True]
    assert all(f.severity == "info" for f in findings(name, healthy))
    assert findings(name, sick) != findings(name, healthy)


@pytest.mark.parametrize("name", NAMES)
def test_finding_is_complete(name):
    (finding,) = findings(name, EXAMPLES[name][0])
    assert (finding.code, finding.name) == (RULES[name].code, name)
    assert finding.evidence
    assert all(quantity.unit for quantity in finding.evidence.values())
    for part in (finding.place, finding.message, finding.cause, finding.fix, finding.source):
        assert part.strip()
        assert "\n" not in part
    assert Finding.from_json(finding.to_json()) == finding


@pytest.mark.parametrize("name", NAMES)
def test_text_has_every_heading_and_setting(name):
    text = explain(name)
    assert explain(RULES[name].code.lower()) == text
    for heading in HEADINGS:
        assert re.search(rf"^{heading}\n  \S", text, re.MULTILINE), heading
    for setting in RULES[name].thresholds:
        assert f"`{setting}`" in RULES[name].text.sections["Threshold"], f"{setting} is not explained"


@pytest.mark.parametrize("name", NAMES)
def test_thresholds_are_numbers(name):
    assert all(isinstance(value, int | float) for value in RULES[name].thresholds.values())


@pytest.mark.parametrize("name", NAMES)
def test_missing_evidence_is_not_assessed(name):
    answer = RULES[name](Evidence())
    assert isinstance(answer, NotAssessed)
    assert answer.reason.startswith("needs ")


@pytest.mark.parametrize("name", NAMES)
def test_lives_with_its_family(name):
    module = RULES[name].judge.__module__
    assert module.split(".")[2] == FOLDERS[RULES[name].code[0]]


@pytest.mark.parametrize("name", NAMES)
def test_explains_known_rules_and_never_itself(name):
    assert set(RULES[name].explains) <= set(RULES)
    assert name not in explained_by(name)


@pytest.mark.parametrize("name", NAMES)
def test_whole_examination_keeps_one_finding_per_cause(name):
    sick, _ = EXAMPLES[name]
    result = examine(sick)
    for root in result.findings:
        others = [f for f in result.findings if f is not root and RANK[f.severity] <= RANK[root.severity]]
        assert not any(root.name in explained_by(other.name) for other in others)
        assert all(RANK[c.severity] >= RANK[root.severity] for c in root.consequences)


def test_catalogue_runs_from_cause_to_symptom():
    letters = [r.code[0] for r in catalogue()]
    assert letters == sorted(letters, key=list(FAMILIES).index)


def test_every_signal_of_the_gauge_can_be_asked_for():
    from streamgauge.gauge.signals import SIGNALS as MEASURED

    assert set(MEASURED) <= set(SIGNALS)
