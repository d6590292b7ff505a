"""The page of a check."""

from __future__ import annotations

from streamgauge.preflight.result import CheckResult
from streamgauge.reporting import render
from streamgauge.reporting.from_check import report_of_check
from streamgauge.rules import Examination, series
from streamgauge.vocabulary import Finding, NotAssessed, Verdict, Wiring


def test_everything_of_a_check_stands_on_its_page() -> None:
    finding = Finding("W001", "missing-residual", "error", "h.0", "no skip path here", fix="add the skip")
    examined = Examination((finding,), (NotAssessed("T006", "loss-spike", "needs the loss"),))
    readings = {"stream_rms": series("stream_rms", [[1.0, 2.5]])}
    result = CheckResult("models.py:build", Wiring(), Verdict("at risk", "a cause"), examined, readings, ("guessed",))
    report = report_of_check(result, "streamgauge check models.py:build")
    (arm,) = report.arms
    assert (arm.verdict, arm.findings, arm.not_assessed) == (result.answer, examined.findings, examined.not_assessed)
    page = render(report)
    for text in ("models.py:build", "a cause", "missing-residual", "add the skip", "guessed", "needs the loss"):
        assert text in page, text
