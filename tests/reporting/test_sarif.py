"""The SARIF log against the standard, transcribed by hand (OASIS SARIF 2.1.0 plus errata 01, section 3)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streamgauge.preflight.result import CheckResult
from streamgauge.reporting.sarif import paths_of, to_sarif
from streamgauge.rules import RULES, Examination, catalogue
from streamgauge.vocabulary import Finding, NotAssessed, Quantity, Verdict, Wiring

STANDARD: dict[str, tuple[str, str, dict[str, str]]] = {
    # object: (required, other permitted properties that we may use, property -> object it holds)
    "log": ("version runs", "$schema", {"runs": "run"}),
    "run": (
        "tool",
        "invocations results columnKind properties",
        {"tool": "tool", "invocations": "invocation", "results": "result"},
    ),
    "tool": ("driver", "", {"driver": "component"}),
    "component": ("name", "semanticVersion version informationUri rules", {"rules": "descriptor"}),
    "descriptor": (
        "id",
        "name shortDescription fullDescription help properties",
        {"shortDescription": "text", "fullDescription": "text", "help": "text"},
    ),
    "text": ("text", "markdown", {}),
    "message": ("text", "markdown", {}),
    "result": (
        "message",
        "ruleId ruleIndex level locations relatedLocations partialFingerprints properties",
        {"message": "message", "locations": "location", "relatedLocations": "location"},
    ),
    "location": (
        "",
        "id message logicalLocations physicalLocation",
        {"message": "message", "logicalLocations": "logical", "physicalLocation": "physical"},
    ),
    "logical": ("", "name fullyQualifiedName kind", {}),
    "physical": ("artifactLocation", "region", {"artifactLocation": "artifact", "region": "region"}),
    "artifact": ("", "uri", {}),
    "region": ("", "startLine", {}),
    "invocation": (
        "executionSuccessful",
        "toolExecutionNotifications",
        {"toolExecutionNotifications": "notification"},
    ),
    "notification": ("message", "level associatedRule", {"message": "message", "associatedRule": "reference"}),
    "reference": ("id", "index", {}),
}
ARRAYS = {"runs", "invocations", "results", "rules", "locations", "relatedLocations", "logicalLocations"}


def conforms(value: Any, kind: str) -> None:
    required, permitted, holds = STANDARD[kind]
    assert isinstance(value, dict), kind
    assert set(required.split()) <= set(value), kind
    assert set(value) <= {*required.split(), *permitted.split()}, kind
    if "level" in value:
        assert value["level"] in ("none", "note", "warning", "error")
    for name, inner in holds.items():
        if name not in value:
            continue
        many = name in ARRAYS or name.endswith("Notifications")
        assert isinstance(value[name], list) == many, name
        for entry in value[name] if many else [value[name]]:
            conforms(entry, inner)


def result(target: str, *findings: Finding) -> CheckResult:
    skipped = (NotAssessed("T006", "loss-spike", "needs loss"),)
    return CheckResult(target, Wiring(), Verdict("at risk", "why"), Examination(findings, skipped), notes=("a note",))


def finding(code: str, severity: Any, place: str, *below: Finding) -> Finding:
    name = next(r.name for r in RULES.values() if r.code == code)
    grounds = {"eps": Quantity(float("inf"), "1")}
    return Finding(code, name, severity, place, "what", grounds, "why", "how", "where", below)


def run_of(checked: CheckResult) -> dict[str, Any]:
    log = json.loads(to_sarif(checked))
    conforms(log, "log")
    assert log["version"] == "2.1.0"
    return log["runs"][0]


def test_every_rule_is_described_with_its_help() -> None:
    rules = run_of(result("gpt2"))["tool"]["driver"]["rules"]
    assert [r["id"] for r in rules] == [r.code for r in catalogue()]
    assert all("How to fix" in r["help"]["text"] for r in rules)


@pytest.mark.parametrize(("severity", "level"), [("error", "error"), ("warning", "warning"), ("info", "note")])
def test_one_result_per_root_finding(severity: str, level: str) -> None:
    cause = finding("W001", severity, "sublayers 0-3 (h.0.attn to h.1.mlp)", finding("I004", severity, "h.1.mlp"))
    run = run_of(result("gpt2", cause))
    (entry,) = run["results"]
    assert entry["level"] == level
    assert run["tool"]["driver"]["rules"][entry["ruleIndex"]]["id"] == entry["ruleId"] == "W001"
    (where,) = entry["locations"]
    assert [at["fullyQualifiedName"] for at in where["logicalLocations"]] == ["h.0.attn", "h.1.mlp"]
    assert "physicalLocation" not in where
    assert entry["properties"]["evidence"] == {"eps": {"value": "inf", "unit": "1"}}
    assert [c["code"] for c in entry["properties"]["consequences"]] == ["I004"]
    assert len(entry["relatedLocations"]) == 1


def test_a_file_is_located_at_its_factory(tmp_path: Path) -> None:
    file = tmp_path / "my models.py"
    file.write_text("import torch\n\ndef builder():\n    ...\n\ndef build():\n    ...\n")
    for target, line in ((f"{file}:build", 6), (f"{file}: Elsewhere", 1)):
        (entry,) = run_of(result(target, finding("W001", "error", "h.0")))["results"]
        place = entry["locations"][0]["physicalLocation"]
        assert place == {"artifactLocation": {"uri": file.as_uri()}, "region": {"startLine": line}}
    (entry,) = run_of(result("src/a b.py:build", finding("W001", "error", "h.0")))["results"]
    assert entry["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "src/a%20b.py"


def test_rules_not_assessed_are_notifications() -> None:
    (note,) = run_of(result("gpt2"))["invocations"][0]["toolExecutionNotifications"]
    assert note["associatedRule"]["id"] == "T006"
    assert "needs loss" in note["message"]["text"]


def test_paths_in_a_place() -> None:
    assert paths_of("blocks.0.attn") == ["blocks.0.attn"]
    assert paths_of("sublayers 0-3, 7 (h.0 first)") == ["h.0"]
    assert paths_of("the whole run") == ["the whole run"]
