"""Rules on constants at the joins, on branches that add nothing, and on sizes at initialization."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from streamgauge.rules import RULES, Evidence, series
from streamgauge.vocabulary import Norm, NotAssessed, Parameter, Probe


def found(name, *evidence, **thresholds):
    answer = RULES[name](Evidence(*evidence), **thresholds)
    return answer if isinstance(answer, NotAssessed) else next(iter(answer), None)


def level(*args, **thresholds):
    finding = found(*args, **thresholds)
    return finding and finding.severity


def scaled(case, placement, blocks, **scales):
    base = case.stack(placement, blocks)
    return replace(base, joins=tuple(replace(j, **scales) for j in base.joins))


def matrix(path, rms, grad, shape=(64, 64), owner="Linear", **more):
    return Parameter(path, shape, "float32", owner, rms=rms, grad_rms=grad, largest_grad=grad and 4 * grad, **more)


# -- wrong-depth-scale --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("blocks", [6, 18, 100])
@pytest.mark.parametrize(("of", "expected"), [(1, None), (2, None), (1 / 8, "warning"), (8, "info")])
def test_deepnorm(case, blocks, of, expected):
    """alpha = (2 L)^(1/4); for L counted as sublayers it is 1.19 times that, which is left alone."""
    wiring = scaled(case, "post", blocks, skip_scale=(2 * blocks * of) ** 0.25)
    assert level("wrong-depth-scale", wiring, {"token_cosine": case.COLLAPSED}) == expected


@pytest.mark.parametrize(("alpha", "expected"), [(48.0, None), (24.0, "info")])
def test_keel_counts_sublayers(case, alpha, expected):
    assert level("wrong-depth-scale", scaled(case, "pre+post", 24, skip_scale=alpha)) == expected


@pytest.mark.parametrize(("blocks", "expected"), [(3, None), (8, "info"), (24, "warning")])
def test_halved_sums_forget_the_embeddings(case, blocks, expected):
    half = math.sqrt(0.5)
    wiring = scaled(case, "pre", blocks, skip_scale=half, branch_scale=half)
    readings = {"retention_total": series("retention_total", [half ** (2 * blocks) if blocks > 8 else 0.5])}
    assert level("wrong-depth-scale", wiring, readings) == expected


@pytest.mark.parametrize(("growth", "expected"), [(5.0, None), (40.0, "warning")])
def test_loud_branches(case, growth, expected):
    readings = {"stream_rms": case.per_place("stream_rms", 1.0, growth)}
    assert level("wrong-depth-scale", scaled(case, "pre", 12, branch_scale=4.0), readings) == expected


# -- identity-layer -----------------------------------------------------------------------------------------------


def ratios(first, last, step=10):
    return {"branch_ratio": series("branch_ratio", [[first] * 24, [last] * 24], steps=[0, step])}


@pytest.mark.parametrize(
    ("first", "last", "step", "expected"),
    [
        (0.0, 1e-3, 10, None),  # ReZero: starts at zero and leaves it
        (0.0, 0.0, 2, None),  # too early
        (0.0, 0.0, 10, "warning"),
        (0.2, 0.0, 10, "error"),
    ],
)
def test_identity_layer(case, first, last, step, expected):
    assert level("identity-layer", case.stack(), ratios(first, last, step)) == expected


def test_branches_that_start_at_zero_are_no_identity_at_init(case):
    readings = {"branch_ratio": series("branch_ratio", [[0.0] * 24])}
    assert level("identity-layer", case.stack(), readings) is None
    assert level("identity-layer", scaled(case, "pre", 12, branch_scale=0.0), readings) == "error"
    assert level("identity-layer", scaled(case, "pre", 12, per_channel=True), ratios(1e-7, 1e-7)) is None


# -- batch-norm-over-padding, output-norm-without-qk-norm ---------------------------------------------------------


def test_batch_norm_without_padding_is_a_habit(case):
    wiring = replace(case.stack(), norms=(Norm("bn", "batchnorm", 1e-5, 512),))
    assert level("batch-norm-over-padding", wiring) == "info"
    assert level("batch-norm-over-padding", wiring, {}, {"probes": (Probe("padding", 0.1, 0.09),)}) == "info"  # dropout


def test_qk_norm_answers_output_norm(case):
    wiring = replace(case.stack("output"), norms=(Norm("q_norm", "rmsnorm", role="qk"),))
    assert level("output-norm-without-qk-norm", wiring, case.ratio(200.0)) is None


# -- sizes at initialization --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("placement", "last", "expected"),
    [
        ("none", 1e3, "warning"),
        ("none", 1e7, "error"),
        ("none", 30.0, None),
        ("output", 1e3, None),
        ("post", 1e3, None),
    ],
)
def test_stream_explodes(case, placement, last, expected):
    assert level("stream-explodes", case.stack(placement), {"stream_rms": case.per_place("stream_rms", 1.0, last)}) == (
        expected
    )


def test_growth_that_overflows_is_an_error_and_a_stream_that_starts_infinite_is_not_judged(case):
    over = {"stream_rms": series("stream_rms", [[1.0, 1e2, 1e4, math.inf]])}
    assert level("stream-explodes", case.stack("none", 2), over) == "error"
    assert isinstance(found("stream-explodes", None, {"stream_rms": series("s", [[math.inf, math.nan]])}), NotAssessed)


@pytest.mark.parametrize(("last", "expected"), [(0.05, None), (1e-4, "warning"), (1e-9, "error")])
def test_stream_vanishes(case, last, expected):
    assert level("stream-vanishes", case.stack(), {"stream_rms": case.per_place("stream_rms", 1.0, last)}) == expected


@pytest.mark.parametrize(
    ("change", "growth", "expected"),
    [
        ({}, 12.0, "warning"),
        ({}, 4.0, "info"),
        ({"branch_scale": 0.14}, 12.0, None),
        ({"per_channel": True}, 12.0, None),
    ],
)
def test_unscaled_residual_init(case, change, growth, expected):
    readings = {"stream_rms": case.per_place("stream_rms", 1.0, growth, 48)}
    assert level("unscaled-residual-init", scaled(case, "pre", 24, **change), readings) == expected


@pytest.mark.parametrize(
    ("std", "expected"), [(0.125, None), (1 / math.sqrt(32), None), (0.3, "info"), (1.0, "warning")]
)
def test_large_init(std, expected):
    """Width 64: std 1/8 has gain 1, He's sqrt(2/64) 1.41, 0.3 2.4, 1 8."""
    facts = {"parameters": tuple(matrix(f"{i}.weight", std, 1e-3) for i in range(4))}
    assert level("large-init", None, {}, facts) == expected


def test_the_fan_in_of_a_transposed_matrix_and_loaded_weights():
    wide = tuple(matrix(f"{i}.weight", 0.3, 1e-3, (16, 256), "Conv1D") for i in range(4))
    assert level("large-init", None, {}, {"parameters": wide}) is None  # gain 1.2 by 16 rows, 4.8 by 256
    facts = {"parameters": tuple(matrix(f"{i}.weight", 1.0, 1e-3) for i in range(4)), "pretrained": True}
    assert level("large-init", None, {}, facts) is None


@pytest.mark.parametrize(
    ("rms", "tied", "loss", "expected"),
    [
        (1.0, True, 79.0, "warning"),
        (1.0, True, None, "warning"),
        (1.0, False, None, None),  # torch's default, as an input
        (1.0, True, 4.5, None),  # the head scales its input down
        (0.088, True, 4.5, None),
    ],
)
def test_tied_embeddings(rms, tied, loss, expected):
    table = matrix("tok.weight", rms, 1e-3, (85, 128), "Embedding", shared_with=("head.weight",) if tied else ())
    readings = {} if loss is None else {"loss": series("loss", [loss])}
    assert level("embedding-scale", None, readings, {"parameters": (table,), "vocab": 85}) == expected


@pytest.mark.parametrize(("change", "expected"), [(None, "info"), (0.96, "info"), (1e-4, "warning")])
def test_tiny_embeddings(case, change, expected):
    wiring = replace(case.stack(), norms=(Norm("ln", "layernorm", 1e-5, 64, role="join"),))
    facts = {"parameters": (matrix("tok.weight", 1e-4, 1e-3, (85, 64), "Embedding"),)}
    if change is not None:
        facts["probes"] = (Probe("input", change),)
    assert level("embedding-scale", wiring, {}, facts) == expected


# -- dead-parameters, initial-loss --------------------------------------------------------------------------------

ENDS = (matrix("tok.weight", 1.0, 1e-3, (32, 64), "Embedding"), matrix("head.weight", 0.1, 1e-2, (32, 64)))


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ((matrix("b.0.up", 0.1, 0.0), matrix("b.0.down", 0.0, 1e-3)), None),  # one zero factor
        ((matrix("b.0.up", 0.0, 1e-3), matrix("b.0.down", 0.1, 0.0)), None),  # the other one
        ((matrix("b.0.up", 0.0, 0.0), matrix("b.0.down", 0.0, 0.0)), "error"),
        ((matrix("b.0.up", 0.1, 0.0), matrix("b.0.down", 0.1, 0.0)), "warning"),  # a dead unit behind
        ((matrix("b.0.up", 0.1, 1e-3), matrix("b.0.down", 0.1, 1e-3)), None),
        ((matrix("proto.up", 0.1, None), matrix("b.0.down", 0.1, 1e-3)), None),  # a layer that was copied
        ((matrix("b.0.up", 0.0, 0.0, trainable=False), matrix("b.0.down", 0.1, 1e-3)), None),  # frozen
        (
            (
                matrix("b.0.up", 0.1, 0.0),
                Parameter("b.0.alpha", (), "float32", rms=0.0, grad_rms=1.0, largest_grad=1.0),
            ),
            None,
        ),
    ],
)
def test_dead_parameters(parameters, expected):
    assert level("dead-parameters", None, {}, {"parameters": (*ENDS, *parameters)}) == expected


def test_a_head_that_starts_at_zero_holds_all_gradients_back_for_one_step():
    parameters = (
        matrix("tok.weight", 1.0, 0.0, (32, 64), "Embedding"),
        matrix("b.0.down", 0.0, 0.0),
        matrix("head.weight", 0.0, 1e-2, (32, 64)),
    )
    assert level("dead-parameters", None, {}, {"parameters": parameters}) is None


@pytest.mark.parametrize(("excess", "expected"), [(0.4, None), (1.4, None), (1.6, "warning"), (-1.0, None)])
def test_initial_loss(excess, expected):
    assert level("initial-loss", None, {"loss": series("loss", [math.log(32) + excess])}, {"vocab": 32}) == expected


def test_a_summed_loss_is_no_mean_of_cross_entropies():
    facts = {"vocab": 32, "parameters": ENDS}
    assert isinstance(found("initial-loss", None, {"loss": series("loss", [900.0])}, facts), NotAssessed)
    large = {"vocab": 32, "parameters": (matrix("head.weight", 1.0, 1e-2, (32, 64)),)}
    assert level("initial-loss", None, {"loss": series("loss", [30.0])}, large) == "warning"


@pytest.mark.parametrize(
    ("change", "noise", "expected"),
    [(0.0, 0.0, "error"), (3e-7, 1e-7, "error"), (1e-3, 0.0, None)],
)
def test_norm_nullspace(change, noise, expected):
    assert level("norm-nullspace", None, {}, {"probes": (Probe("input", change, noise),)}) == expected


def test_outputs_that_move_by_themselves_do_not_tell():
    assert isinstance(found("norm-nullspace", None, {}, {"probes": (Probe("input", 0.3, 0.2),)}), NotAssessed)
