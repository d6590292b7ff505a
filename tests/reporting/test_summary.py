from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from streamgauge.reporting import Report, summarise
from streamgauge.reporting.summary import count, last, main_finding, measured, walk
from streamgauge.vocabulary import Place, Readings


def table(values: list[list[float]]) -> Readings:
    array = np.array(values, dtype=np.float64)
    places = tuple(Place(i, f"p{i}") for i in range(array.shape[1]))
    return Readings("token_cosine", array, np.arange(len(array)), places, "1")


def test_summary_reads_the_end_of_the_run(canned: Report) -> None:
    none, entropy = canned.arms[0], canned.data.unigram_entropy
    found = summarise(none, canned)
    assert found.val_loss == none.readings["val_loss"].values[-1, 0]
    assert entropy is not None
    assert found.gain == pytest.approx(entropy - none.readings["val_loss"].values[-1, 0])
    assert found.retention == pytest.approx(0.62**8)
    assert found.token_cosine == none.readings["token_cosine"].values[-1, -1]
    assert found.steps == 59
    assert found.findings == {"error": 2, "warning": 1, "info": 0}


def test_an_arm_without_readings_has_no_numbers(alone: Callable[..., Report]) -> None:
    report = alone(readings={})
    found = summarise(report.arms[0], report)
    assert (found.val_loss, found.gain, found.retention, found.token_cosine, found.steps) == (None,) * 5


def test_last_takes_the_last_place_that_was_ever_measured() -> None:
    assert last(table([[1.0, 2.0, math.nan], [3.0, 4.0, math.nan]])) == 4.0
    assert math.isnan(last(table([[1.0, 2.0], [3.0, math.nan]])) or 0.0)
    assert last(None) is None


def test_a_run_that_ended_in_nan_says_so(canned: Report) -> None:
    arm = canned.arms[2]
    values = arm.readings["val_loss"].values.copy()
    values[-1] = math.inf
    broken = replace(arm, readings={**arm.readings, "val_loss": replace(arm.readings["val_loss"], values=values)})
    assert summarise(broken, canned).val_loss == math.inf


def test_consequences_are_counted_and_walked_after_their_cause(canned: Report) -> None:
    findings = canned.arms[0].findings
    assert [f.name for f in walk(findings)] == ["missing-residual", "token-collapse", "unigram-plateau"]
    assert count(()) == {"error": 0, "warning": 0, "info": 0}


def test_main_finding_is_the_first_above_information(canned: Report) -> None:
    names = [f.name if f else None for f in map(main_finding, canned.arms)]
    assert names == ["missing-residual", None, None, None]


def test_places_without_a_number_are_not_measured_unless_all_are_so() -> None:
    some = measured(table([[math.nan, 1.0, math.nan], [math.nan, math.nan, 2.0]]))
    assert [place.index for place in some.places] == [1, 2]
    assert len(measured(table([[math.nan, math.nan]])).places) == 2
