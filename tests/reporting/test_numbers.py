from __future__ import annotations

import math

import pytest

from streamgauge.reporting.numbers import counted, evidence, fixed, printable, shown, when
from streamgauge.vocabulary import Quantity


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0"),
        (3.0, "3"),
        (3.14159, "3.142"),
        (1.23456e-9, "1.235e-9"),
        (-2.5e12, "-2.5e12"),
        (123456.7, "123,457"),
        (1_000_000, "1,000,000"),
        (True, "yes"),
        (math.nan, "not finite (nan)"),
        (-math.inf, "not finite (-inf)"),
        ((1, 2.5), "1, 2.5"),
        ({"a": 1}, "a=1"),
        ([], "–"),
        ("text", "text"),
    ],
)
def test_shown(value: object, text: str) -> None:
    assert shown(value) == text


def test_fixed_lines_up_and_says_what_is_not_finite() -> None:
    assert [fixed(v) for v in (3.2, 12.0, None, math.inf)] == ["3.200", "12.000", "–", "not finite (inf)"]
    assert [fixed(v, 2, sign=True) for v in (0.5, -0.5)] == ["+0.50", "-0.50"]


def test_counted() -> None:
    assert [counted(1, "error"), counted(2, "warning"), counted(2, "info")] == ["1 error", "2 warnings", "2 info"]


def test_evidence_of_a_pure_number_shows_no_unit() -> None:
    assert evidence(Quantity(0.95)) == ("0.95", "")
    assert evidence(Quantity(3.5, "nat")) == ("3.5", "nat")
    assert evidence(Quantity(float("nan"), "nat")) == ("not finite (nan)", "nat")


def test_control_characters_are_made_visible() -> None:
    assert printable("a\x1b[31mb\x07") == "a\\x1b[31mb\\x07"
    assert printable("ein Fluß\n") == "ein Fluß\n"


def test_when() -> None:
    assert when("2026-01-01T13:05:59+01:00") == "2026-01-01 12:05 UTC"
    assert when("2026-01-01T13:05:59") == "2026-01-01 13:05"
    assert when("yesterday") == "yesterday"
