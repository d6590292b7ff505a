from __future__ import annotations

from dataclasses import replace

import pytest

from streamgauge.rules import RULES, Evidence, series
from streamgauge.rules.structure.strain import blocks_of, plain_post, strain
from streamgauge.vocabulary import Join, Norm, Tap


def level(name, *evidence, **thresholds):
    answer = RULES[name](Evidence(*evidence), **thresholds)
    return answer[0].severity if answer else None


def rehearsal(apart, retention, steps=(0, 5)):
    return {
        "token_cosine": series("token_cosine", [[0.1, 1 - d] for d in apart], steps=list(steps)),
        "retention_total": series("retention_total", list(retention), steps=list(steps)),
    }


# Measured on 18 Post-LN layers of width 64, seed 0: (1 - cosine, retention) at init and after 5 steps of Adam.
XAVIER_1E3 = rehearsal((1.34e-2, 3e-5), (0.91, 0.01))
XAVIER_3E4 = rehearsal((1.34e-2, 6e-4), (0.91, 0.21))
XAVIER_1E4 = rehearsal((1.34e-2, 6.1e-3), (0.91, 0.86))
DEFAULT_1E3 = rehearsal((0.22, 0.156), (0.66, 1.0))


@pytest.mark.parametrize(
    ("readings", "expected"),
    [(XAVIER_1E3, "warning"), (XAVIER_3E4, "info"), (XAVIER_1E4, "info"), (DEFAULT_1E3, "info"), ({}, "info")],
)
def test_depth_needs_a_symptom(case, readings, expected):
    assert level("deep-post-norm", case.stack("post", 18), readings) == expected


@pytest.mark.parametrize(("blocks", "expected"), [(12, None), (13, "warning")])
def test_deeper_than_twelve(case, blocks, expected):
    assert level("deep-post-norm", case.stack("post", blocks), XAVIER_1E3) == expected


@pytest.mark.parametrize(("loss", "expected"), [("STALLED", "error"), ("TRAINS", "info")])
def test_the_loss_has_the_last_word(case, loss, expected):
    readings = {**XAVIER_1E3, "loss": getattr(case, loss)}
    assert level("deep-post-norm", case.stack("post", 18), readings, case.ENTROPY) == expected


def test_a_rising_loss_and_a_lost_gradient_are_symptoms_too(case):
    rising = {"loss": series("loss", [3.5, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0])}
    assert level("deep-post-norm", case.stack("post", 18), rising) == "warning"
    lost = {"retention_total": series("retention_total", [0.0035])}  # decoder with cross-attention, memory 0.9 alike
    assert level("deep-post-norm", case.stack("post", 18), lost) == "warning"


@pytest.mark.parametrize(
    "change",
    [{"skip_scale": 2.45}, {"skip_scale": "learned-vector"}, {"placement": "pre+post", "skip_scale": 36.0}],
    ids=["DeepNorm", "Admin", "KEEL"],
)
def test_what_carries_the_stream_past_its_norms_is_no_plain_post_norm(case, change):
    base = case.stack("post", 18)
    wiring = replace(base, joins=tuple(replace(j, **change) for j in base.joins))
    assert plain_post(wiring) == []
    assert level("deep-post-norm", wiring, XAVIER_1E3) is None


def test_a_common_factor_on_skip_and_branch_is_removed_by_the_norm(case):
    base = case.stack("post", 18)
    wiring = replace(base, joins=tuple(replace(j, skip_scale=0.707, branch_scale=0.707) for j in base.joins))
    assert level("deep-post-norm", wiring, XAVIER_1E3) == "warning"


def test_the_long_skip_of_b2t(case):
    base = case.stack("post", 18)
    tapped = [replace(j, branch_tap=Tap(j.path, "output")) for j in base.joins]
    long = [Join(100 + b, f"blocks.{b}", "post", norm="layernorm", kind="other") for b in range(18)]
    assert level("deep-post-norm", replace(base, joins=(*tapped, *long)), XAVIER_1E3) is None


def test_blocks_are_counted_by_what_mixes_tokens(case):
    assert blocks_of(list(case.stack("post", 7).joins)) == 7
    assert blocks_of([Join(i, "", "post", kind="ffn") for i in range(5)]) == 3


def test_three_steps_are_needed():
    early = rehearsal((1e-2, 1e-6), (1.0, 1e-3), steps=(0, 2))
    assert not strain(early["token_cosine"], early["retention_total"], None, gone=0.02, fraction=0.05).symptom


# -- doubled-final-norm, residual-from-normed ---------------------------------------------------------------------

FINAL = (Norm("norm", "layernorm", role="final"),)


@pytest.mark.parametrize(
    ("placement", "norms", "readings", "expected"),
    [
        ("post", FINAL, {}, "info"),
        ("post", FINAL, XAVIER_1E3, "warning"),
        ("post", (replace(FINAL[0], role="other"),), XAVIER_1E3, None),  # a norm inside the head, as BERT's
        ("pre", FINAL, XAVIER_1E3, None),
    ],
)
def test_doubled_final_norm(case, placement, norms, readings, expected):
    assert level("doubled-final-norm", replace(case.stack(placement), norms=norms), readings) == expected


@pytest.mark.parametrize(
    ("sums", "cosine", "expected"), [(23, 0.997, "warning"), (23, 0.61, "info"), (5, 0.997, "info"), (23, None, "info")]
)
def test_residual_from_normed(case, sums, cosine, expected):
    note = f"residual from normed: {sums} sums are normed only in the block of the next join"
    readings = {} if cosine is None else {"token_cosine": series("token_cosine", [[0.1, cosine]])}
    assert level("residual-from-normed", replace(case.stack("post"), notes=(note,)), readings) == expected


def test_the_flag_explains_the_depth_and_the_second_norm():
    from streamgauge.rules.order import explained_by

    assert {"deep-post-norm", "doubled-final-norm", "token-collapse"} <= explained_by("norm-flag-ignored")
