"""The operation that made the first NaN is named, and the rule that knows its cause comes before the symptom."""

from __future__ import annotations

import pytest

from streamgauge.rules import RULES, Evidence, examine, series
from streamgauge.vocabulary import Handling, Norm, Origin, Wiring

NAN = {"loss": series("loss", [0.7, 0.6, float("nan")], unit="nat")}


def test_operation_and_module_are_named():
    origin = Origin("softmax", "blocks.0", dtype="float16", largest=12.5)
    (finding,) = RULES["non-finite"](Evidence(None, NAN, {"origin": origin}))
    assert finding.place == "blocks.0"
    assert "made by softmax (nan, float16, forward) in blocks.0" in finding.message
    assert finding.evidence["largest_input"].value == 12.5


@pytest.mark.parametrize(
    ("origin", "wiring", "facts", "cause"),
    [
        (Origin("softmax", "blocks.0", masked_rows=4, step=2), None, {}, "fully-masked-row"),
        (
            Origin("div", "ln", dtype="float16", zero_divisor=True),
            Wiring(norms=(Norm("ln", "layernorm", 1e-12, 64, "float16", False),)),
            {},
            "eps-underflow",
        ),
        (Origin("addmm", "ffn", value="inf", dtype="float16", largest=6e4), None, {}, "half-overflow"),
    ],
)
def test_cause_first_and_the_nan_under_it(origin, wiring, facts, cause):
    readings = {**NAN, "stream_rms": series("stream_rms", [[900.0], [900.0], [float("nan")]])}
    handling = Handling(autocast="float16")
    result = examine(Evidence(wiring, readings, {"origin": origin, "handling": handling, **facts}))
    first = result.findings[0]
    assert (first.name, first.severity) == (cause, "error")
    assert "non-finite" in {c.name for c in first.consequences}
    assert len([f for f in result.findings if f.severity != "info"]) == 1
