from __future__ import annotations

import math

import pytest

from streamgauge.rules import RULES, Evidence, series
from streamgauge.vocabulary import Join, NotAssessed, Wiring


def found(name, *evidence, **thresholds):
    answer = RULES[name](Evidence(*evidence), **thresholds)
    return answer if isinstance(answer, NotAssessed) else next(iter(answer), None)


def level(*args, **thresholds):
    finding = found(*args, **thresholds)
    return finding and finding.severity


# -- missing-residual ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("blocks", "cosine", "loss", "expected"),
    [
        (12, None, None, "warning"),  # wiring alone, as from meta tensors
        (12, 0.97, None, "warning"),
        (3, 0.9, None, "warning"),
        (2, 0.9, None, "info"),
        (12, 0.9999, None, "error"),
        (2, None, None, "info"),  # four sublayers: shallow nets train without
        (2, 0.9999, None, "warning"),
        (12, 0.5, None, "info"),  # shaped attention keeps tokens apart
        (12, 0.9999, "TRAINS", "info"),
        (12, 0.5, "STALLED", "error"),
    ],
)
def test_missing_residual_levels(case, blocks, cosine, loss, expected):
    readings = {} if cosine is None else {"token_cosine": case.per_place("token_cosine", 0.4, cosine)}
    if loss:
        readings["loss"] = getattr(case, loss)
    wiring = case.stack(blocks=blocks, joined=False)
    assert level("missing-residual", wiring, readings, case.ENTROPY) == expected


def test_missing_residual_by_a_lost_gradient(case):
    readings = {"token_cosine": case.DISTINCT, "retention_total": series("retention_total", [1e-5])}
    assert level("missing-residual", case.stack(joined=False), readings) == "warning"


def test_a_head_or_a_pooler_without_residual_is_none_of_this(case):
    joins = case.stack(blocks=12).joins
    pooler = tuple(Join(24 + i, f"pooler.{i}", "none", kind=kind) for i, kind in enumerate(("attention", "ffn")))
    assert level("missing-residual", Wiring(joins, pooler, True)) is None
    assert level("missing-residual", Wiring((), pooler[:1], True)) is None


def test_missing_residual_names_the_line_to_change(case):
    finding = found("missing-residual", case.stack(blocks=2, joined=False))
    assert finding.place == "sublayers 0-3 (blocks.0.attention to blocks.1.ffn)"
    assert "`blocks.0.attention`" in finding.fix
    assert "`x = x + f(norm(x))` in place of `x = f(norm(x))`" in finding.fix


def test_nothing_to_judge():
    assert found("missing-residual", Wiring()).reason == "the wiring lists no sublayer"


# -- missing-final-norm -------------------------------------------------------------------------------------------

UNIFORM = math.log(32)


@pytest.mark.parametrize("placement", ["pre", "sandwich", "output", "parallel-pre"])
@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ([UNIFORM + 0.6], "info"),
        ([UNIFORM + 4.5], "warning"),
        ([math.nan], "error"),
        ([UNIFORM + 4.5, math.inf], "error"),
    ],
)
def test_missing_final_norm_levels(case, placement, loss, expected):
    wiring = case.stack(placement, final_norm=False)
    assert level("missing-final-norm", wiring, {"loss": series("loss", loss)}, {"vocab": 32}) == expected


@pytest.mark.parametrize("placement", ["post", "pre+post", "none"])
def test_stacks_that_norm_the_stream_need_no_more(case, placement):
    readings = {"loss": series("loss", [8.0])}
    assert level("missing-final-norm", case.stack(placement, final_norm=False), readings, {"vocab": 32}) is None


def test_the_last_join_decides(case):
    pre, post = case.stack("pre").joins, case.stack("post").joins
    assert level("missing-final-norm", Wiring((*post[:12], *pre[12:]), (), False)) == "info"
    assert level("missing-final-norm", Wiring((*pre[:12], *post[12:]), (), False)) is None
    unknown = case.stack("unrecognised", final_norm=False)
    assert "was not recognised" in found("missing-final-norm", unknown).reason


@pytest.mark.parametrize(("rms", "expected"), [(0.05, "info"), (2.0, "info"), (4.0, "warning")])
def test_without_a_vocabulary_the_stream_rms_decides(case, rms, expected):
    readings = {"stream_rms": case.per_place("stream_rms", 1.0, rms)}
    assert level("missing-final-norm", case.stack(final_norm=False), readings) == expected


def test_loaded_weights_are_not_held_to_the_uniform_loss(case):
    facts = {"vocab": 32, "pretrained": True}
    readings = {"loss": series("loss", [9.0])}
    assert level("missing-final-norm", case.stack(final_norm=False), readings, facts) == "info"


def test_a_large_initial_loss_stays_a_warning_when_the_run_recovers(case):
    readings = {"loss": case.losses(8.0, 0.8)}
    assert level("missing-final-norm", case.stack(final_norm=False), readings, {"vocab": 32}) == "warning"


def test_fix_names_the_kind_of_norm_in_use():
    wiring = Wiring((Join(0, "layers.0", "pre", norm="rmsnorm"),), (), False)
    assert "nn.RMSNorm" in found("missing-final-norm", wiring).fix
