"""The wiring of 78 models, against the truth read from their source (tests/cases/wiring_cases.py defines the words)."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

import pytest

from streamgauge.vocabulary import Wiring
from streamgauge.wiring import read_wiring

PATH = Path(__file__).parents[1] / "cases" / "wiring_cases.py"
SPEC = importlib.util.spec_from_file_location("wiring_cases", PATH)
assert SPEC is not None
assert SPEC.loader is not None
MODULE = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(MODULE)
GRADED = [case for case in MODULE.CASES if not case["ambiguous"]]
DEBATED = [case for case in MODULE.CASES if case["ambiguous"]]

pytestmark = pytest.mark.filterwarnings("ignore")


def read(case: dict[str, Any]) -> Wiring:
    return read_wiring(case["build"](), **case["inputs"]())


def by_name(cases: list[dict[str, Any]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=[case["name"] for case in cases])


@by_name(GRADED)
def test_wiring_is_exact(case: dict[str, Any]) -> None:
    wiring = read(case)
    assert len(wiring.joins) == case["joins"]
    assert wiring.placements in [case["placements"], *case["placements_alt"]]
    if case["final_norm_extra"] is not None:
        assert wiring.final_norm == case["final_norm_extra"]
    for join in wiring.joins:
        if join.placement != "none":
            assert join.norm == case["norm"]
            assert join.eps == pytest.approx(case["eps"], rel=1e-6)
        assert join.per_channel == case["layerscale"]
        if case["skip_scale"] is None:
            assert join.skip_scale is None
        else:
            assert join.skip_scale == pytest.approx(case["skip_scale"], rel=1e-6)
    scaled = [join.branch_scale for join in wiring.joins if join.branch_scale is not None]
    assert len(scaled) == (case["residual_scale_joins"] or 0)
    assert all(math.isclose(float(s), case["residual_scale"], rel_tol=1e-6) for s in scaled)
    assert not wiring.unplaced


@by_name(DEBATED)
def test_debated_cases_read_as_one_of_the_readings(case: dict[str, Any]) -> None:
    wiring = read(case)
    assert len(wiring.joins) in [case["joins"], *case["joins_alt"]]
    assert wiring.placements in [case["placements"], *case["placements_alt"]]


def test_only_the_model_without_residual_has_unjoined_sublayers() -> None:
    found = {case["name"]: len(read(case).unjoined) for case in GRADED}
    assert {name: n for name, n in found.items() if n} == {"custom_no_residual": 4}
