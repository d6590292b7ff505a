from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from streamgauge.reporting import Report, to_json
from streamgauge.vocabulary import Finding, Verdict, Wiring


def refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def test_findings_verdict_and_wiring_come_back(canned: Report) -> None:
    document = json.loads(to_json(canned), parse_constant=refuse)
    for arm, got in zip(canned.arms, document["arms"], strict=True):
        assert Verdict.from_json(json.dumps(got["verdict"])) == arm.verdict
        assert Wiring.from_json(json.dumps(got["wiring"])) == arm.wiring
        assert tuple(Finding.from_json(json.dumps(f)) for f in got["findings"]) == arm.findings
    assert document["data"]["unigram_entropy"] == canned.data.unigram_entropy
    assert document["format"] == 1
    assert "readings" not in document["arms"][0]


def test_readings_are_written_when_asked_for_and_stay_strict(canned: Report) -> None:
    arm = canned.arms[0]
    values = arm.readings["grad_rms"].values.copy()
    values[0, :2] = math.inf, math.nan
    broken = replace(arm, readings={"grad_rms": replace(arm.readings["grad_rms"], values=values)})
    document = json.loads(to_json(replace(canned, arms=(broken,)), readings=True), parse_constant=refuse)
    got = document["arms"][0]["readings"]["grad_rms"]
    assert got["values"][0][:2] == ["inf", None]
    assert np.array_equal(np.array(got["values"][1:]), values[1:])
    assert got["steps"] == arm.readings["grad_rms"].steps.tolist()
    assert got["places"][3]["path"] == "blocks.1.ffn"


def test_a_value_json_does_not_know_becomes_text(alone: Callable[..., Report]) -> None:
    document = json.loads(to_json(alone(config={"range": range(3), "lr": math.nan, "pair": (1, 2)})))
    assert document["arms"][0]["config"] == {"range": "range(0, 3)", "lr": "nan", "pair": [1, 2]}
