from __future__ import annotations

from dataclasses import replace

import pytest

from streamgauge.rules import RULES, Evidence, series
from streamgauge.vocabulary import Flag, Join, Norm, NotAssessed, Parameter, Probe, Wiring


def found(name, *evidence, **thresholds):
    answer = RULES[name](Evidence(*evidence), **thresholds)
    return answer if isinstance(answer, NotAssessed) else next(iter(answer), None)


def level(*args, **thresholds):
    finding = found(*args, **thresholds)
    return finding and finding.severity


def gain(path, *shape, grad=1e-3):
    return Parameter(f"{path}.weight", shape, "float32", "LayerNorm", rms=1.0, grad_rms=grad)


def matrix(path, *shape, grad=1e-3):
    return Parameter(f"{path}.weight", shape, "float32", "Linear", rms=0.1, grad_rms=grad)


# -- norm-axis, narrow-norm ---------------------------------------------------------------------------------------

LEAK, TIGHT = (Probe("future", 0.2, 1e-7),), (Probe("future", 1e-7, 1e-7),)


@pytest.mark.parametrize(
    ("kind", "size", "parameters", "probes", "expected"),
    [
        ("layernorm", 1024, (gain("ln", 64),), (), "warning"),
        ("layernorm", 1024, (gain("ln", 64),), LEAK, "error"),
        ("layernorm", 1024, (gain("ln", 16, 64),), (), "info"),  # nn.LayerNorm((16, 64)): chosen
        ("layernorm", 1024, (gain("ln", 16, 64),), LEAK, "error"),
        ("layernorm", 16, (gain("ln", 64),), LEAK, "error"),  # over the tokens in place of the features
        ("layernorm", 16, (gain("ln", 64),), TIGHT, None),  # groups of features
        ("rmsnorm", 1024, (matrix("mlp", 256, 64), matrix("out", 64, 64)), (), "warning"),  # no gain: by the matrices
        ("rmsnorm", 64, (matrix("mlp", 256, 64), matrix("out", 64, 64)), (), None),
        ("scalenorm", 64, (gain("ln", 1), matrix("out", 64, 64)), (), None),
        ("batchnorm", 512, (gain("ln", 64),), (), None),
        ("batchnorm", 512, (gain("ln", 64),), LEAK, "error"),
    ],
)
def test_norm_axis(case, kind, size, parameters, probes, expected):
    wiring = replace(case.stack(), norms=(Norm("ln", kind, 1e-5, size, role="join"),))
    assert level("norm-axis", wiring, {}, {"parameters": parameters, "probes": probes}) == expected


@pytest.mark.parametrize(
    ("kind", "size", "expected"),
    [
        ("layernorm", 1, "error"),
        ("rmsnorm", 1, "error"),
        ("layernorm", 2, "warning"),
        ("rmsnorm", 2, "info"),
        ("layernorm", 8, None),
        ("batchnorm", 2, None),
    ],
)
def test_narrow_norm(case, kind, size, expected):
    assert level("narrow-norm", replace(case.stack(), norms=(Norm("ln", kind, 1e-5, size),))) == expected


# -- unused-norm, norm-flag-ignored -------------------------------------------------------------------------------


def test_an_unused_norm_beside_a_sound_stack_is_a_habit(case):
    parameters = (gain("old_norm", 64, grad=None), matrix("head", 32, 64))
    assert level("unused-norm", case.stack(), {}, {"parameters": parameters}) == "info"
    assert level("unused-norm", case.stack(final_norm=False), {}, {"parameters": parameters}) == "warning"


def test_a_layer_that_a_container_copied_is_left_alone(case):
    parameters = (
        gain("layer.norm1", 64, grad=None),
        matrix("layer.linear1", 64, 64, grad=None),
        matrix("head", 32, 64),
    )
    assert level("unused-norm", case.stack(), {}, {"parameters": parameters}) is None


def test_frozen_norms_are_in_use_where_the_graph_has_them(case):
    wiring = replace(case.stack(), norms=(Norm("ln_f", "layernorm", role="final"),))
    parameters = (gain("ln_f", 64, grad=None), matrix("head", 32, 64))
    assert level("unused-norm", wiring, {}, {"parameters": parameters}) is None


@pytest.mark.parametrize(
    ("name", "value", "placement", "expected"),
    [
        ("normalize_before", True, "post", "warning"),
        ("norm_first", True, "post", "warning"),
        ("do_layer_norm_before", True, "post", "warning"),
        ("pre_norm", True, "post", "warning"),
        ("norm_position", "pre", "post", "warning"),
        ("normalize_before", True, "pre", None),
        ("normalize_before", True, "sandwich", None),
        ("normalize_before", False, "post", None),
        ("norm_first", False, "pre", "info"),
        ("post_norm", True, "pre", "info"),
        ("post_norm", True, "post", None),
        ("post_norm", False, "pre", None),
        ("norm_before_gate", True, "post", None),
        ("rescale_prenorm_residual", False, "pre", None),
    ],
)
def test_flags(case, name, value, placement, expected):
    assert level("norm-flag-ignored", case.stack(placement), {}, {"flags": (Flag("", name, value),)}) == expected


@pytest.mark.parametrize("holder", ["", "blocks", "config", "blocks.config"])
def test_a_flag_speaks_for_what_its_holder_contains(case, holder):
    facts = {"flags": (Flag(holder, "pre_norm", True),)}
    assert level("norm-flag-ignored", case.stack("post"), {}, facts) == "warning"


def test_a_flag_elsewhere_does_not_speak_for_the_stack(case):
    facts = {"flags": (Flag("decoder", "pre_norm", True),)}
    assert level("norm-flag-ignored", case.stack("post"), {}, facts) is None


# -- partial-norm, partial-residual, mixed-placement --------------------------------------------------------------


@pytest.mark.parametrize(("growth", "expected"), [(1.2, "info"), (4.0, "warning")])
def test_partial_norm(case, growth, expected):
    line = "2 of 3 products of the branch in blocks.0 read the stream without its norm (and so in 5 more branches)"
    readings = {"stream_rms": case.per_place("stream_rms", 1.0, growth)}
    assert level("partial-norm", replace(case.stack(), unplaced=(line,)), readings) == expected


def test_a_norm_on_queries_alone(case):
    norms = tuple(Norm(f"blocks.{b}.attention.q_norm", "rmsnorm", role="qk") for b in range(12))
    both = tuple(replace(n, path=n.path.replace("q_norm", "k_norm")) for n in norms)
    assert level("partial-norm", replace(case.stack(), norms=norms)) == "info"
    assert level("partial-norm", replace(case.stack(), norms=norms + both)) is None


def test_only_what_lies_in_the_repeated_blocks_is_partial(case):
    joins = case.stack().joins
    projector = Join(30, "projector.1", "none", kind="ffn")
    assert level("partial-residual", Wiring(joins, (projector,), True)) is None
    assert level("partial-residual", Wiring(joins, (replace(projector, path="blocks.3.mlp"),), True)) == "warning"


@pytest.mark.parametrize(
    "words",
    [
        ["post"] * 6 + ["pre"] * 18,  # Mix-LN
        ["post", "pre", "pre"] * 8,  # regular
        ["pre"] * 24,
    ],
)
def test_mixtures_that_are_meant(case, words):
    joins = tuple(Join(i, f"blocks.{i}", word, kind="attention") for i, word in enumerate(words))
    assert level("mixed-placement", Wiring(joins, (), True)) is None


def test_a_placement_for_each_kind_is_meant(case):
    joins = tuple(replace(j, placement="pre" if j.kind == "attention" else "post") for j in case.stack().joins)
    assert level("mixed-placement", Wiring(joins, (), True)) is None


@pytest.mark.parametrize(("ratio", "expected"), [(0.25, "info"), (0.02, "warning"), (1.0, "warning")])
def test_a_stray_is_judged_by_what_it_does(case, ratio, expected):
    joins = list(case.stack().joins)
    joins[12] = replace(joins[12], placement="post")
    row = [0.2] * 24
    row[12] = ratio
    readings = {"branch_ratio": series("branch_ratio", [row])}
    assert level("mixed-placement", Wiring(tuple(joins), (), True), readings) == expected
