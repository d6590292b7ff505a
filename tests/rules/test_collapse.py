from __future__ import annotations

import pytest

from streamgauge.rules import RULES, Evidence, series
from streamgauge.vocabulary import NotAssessed


def found(wiring, cosines, facts=None, **readings):
    token_cosine = series("token_cosine", [cosines], steps=[0])
    answer = RULES["token-collapse"](Evidence(wiring, {"token_cosine": token_cosine, **readings}, facts or {}))
    return answer if isinstance(answer, NotAssessed) else next(iter(answer), None)


@pytest.mark.parametrize(
    ("placement", "last", "expected"),
    [
        ("pre", 0.91, None),  # 48 Pre-LN blocks with Xavier
        ("pre", 0.97, "info"),
        ("pre", 0.999, "warning"),
        ("sandwich", 0.88, None),
        ("post", 0.9999, "info"),  # common at init, and many of these train
        ("unrecognised", 0.9999, "info"),
    ],
)
def test_at_init_the_wiring_decides(case, placement, last, expected):
    finding = found(case.stack(placement), [0.1, 0.5, last])
    assert (finding and finding.severity) == expected


def test_without_residual(case):
    finding = found(case.stack(joined=False), [0.5, 0.94, 0.96, 0.99])
    assert finding.severity == "warning"
    assert finding.place == "sublayers 2-3 (blocks.1.attention to blocks.1.ffn)"
    assert "x + f(norm(x))" in finding.fix
    # bidirectional attention that is uniform at init makes all tokens equal at once
    assert found(case.stack(joined=False), [1.0, 1.0]).severity == "warning"


@pytest.mark.parametrize(("loss", "expected"), [("STALLED", "error"), ("TRAINS", None)])
def test_the_loss_decides_in_a_run(case, loss, expected):
    for placement in ("pre", "post"):
        finding = found(case.stack(placement), [0.2, 0.99], case.ENTROPY, loss=getattr(case, loss))
        assert (finding and finding.severity) == expected


def test_loaded_weights_are_not_judged_at_init(case):
    assert found(case.stack(), [0.1, 0.999], {"pretrained": True}) is None


def test_equal_inputs_are_not_the_stack_s_fault(case):
    assert "equal already after the first sublayer" in found(case.stack(), [0.999, 0.9999]).reason
    assert found(case.stack(), [0.94, 0.96]) is None


def test_nan_is_no_cosine(case):
    assert "no finite" in found(case.stack(), [float("nan")] * 2).reason
    assert found(case.stack(joined=False), [0.1, 0.99, float("nan")]).evidence["token_cosine_last"].value == 0.99
