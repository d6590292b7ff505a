"""Every fault in the wiring or at initialization, built into a small model: the cause is found first, and healthy
models of the same kind are left alone."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import cross_entropy, mse_loss

from streamgauge.gauge import measure
from streamgauge.preflight import gather, probes
from streamgauge.preflight.objective import Inputs
from streamgauge.rules import Evidence, Examination, examine
from streamgauge.wiring import read_wiring

MODELS = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("faulty.py"))))

pytestmark = pytest.mark.slow


def judge(model, given, loss) -> Examination:
    """What the wiring, one backward pass and the probe of the input say."""
    wiring = read_wiring(model, given)
    loss().backward()
    facts = {"parameters": gather.parameters(model), "flags": gather.flags(model), "vocab": None}
    model.zero_grad(set_to_none=True)
    readings = measure(model, wiring, loss)
    seen = [probes.sensitivity(model, Inputs((given,), {}), given)]
    if not given.is_floating_point():
        facts |= {"vocab": MODELS.VOCAB, "causal_lm": True}
        seen.append(probes.future(model, Inputs((given,), {}), given))
    else:
        readings.pop("loss")
    return examine(Evidence(wiring, readings, {**facts, "probes": tuple(p for p in seen if p is not None)}))


def language(fault: str, depth: int) -> Examination:
    model = MODELS.LM(fault, depth)
    ids = torch.randint(MODELS.VOCAB, (8, MODELS.LENGTH + 1), generator=torch.Generator().manual_seed(0))
    given, targets = ids[:, :-1].contiguous(), ids[:, 1:].flatten()
    return judge(model, given, lambda: cross_entropy(model(given).flatten(0, 1), targets))


def scalars(fault: str) -> Examination:
    model = MODELS.Scalars(fault)
    given = torch.randn(8, MODELS.LENGTH, generator=torch.Generator().manual_seed(0))
    return judge(model, given, lambda: mse_loss(model(given), given.roll(-1, 1)))


def alarms(result: Examination) -> list[tuple[str, str]]:
    return [(f.severity, f.name) for f in result.findings if f.severity != "info"]


@pytest.mark.parametrize(
    ("fault", "depth", "expected"),
    [
        ("ffn without skip", 6, ("warning", "partial-residual")),
        ("raw keys", 6, ("warning", "partial-norm")),
        ("output", 24, ("warning", "output-norm-without-qk-norm")),
        ("halved", 24, ("warning", "wrong-depth-scale")),
        ("no norm", 12, ("warning", "unused-norm")),
        ("ln2 unused", 6, ("warning", "unused-norm")),
        ("no final call", 16, ("warning", "unused-norm")),
        ("no skip", 6, ("error", "missing-residual")),
        ("gate", 4, ("error", "identity-layer")),
        ("detached", 4, ("error", "dead-parameters")),
        ("two zeros", 4, ("error", "dead-parameters")),
        ("one post", 12, ("warning", "mixed-placement")),
        ("large", 4, ("warning", "large-init")),
        ("large head", 4, ("warning", "initial-loss")),
        ("tied", 4, ("warning", "embedding-scale")),
        ("tiny", 4, ("warning", "embedding-scale")),
    ],
)
def test_the_cause_is_the_only_root(fault, depth, expected):
    assert alarms(language(fault, depth)) == [expected]


def test_growth_comes_before_the_overflow_that_it_causes():
    result = language("no norm", 24)
    assert alarms(result)[0] == ("error", "stream-explodes")
    assert "non-finite" in {c.name for c in result.findings[0].consequences}


@pytest.mark.parametrize(("fault", "expected"), [("narrow", "narrow-norm"), ("broadcast", "norm-nullspace")])
def test_norms_that_delete_the_input(fault, expected):
    assert alarms(scalars(fault)) == [("error", expected)]


@pytest.mark.parametrize(
    ("fault", "depth", "habit"),
    [
        ("", 6, None),
        ("", 24, None),
        ("one zero", 4, None),
        ("halved", 8, "wrong-depth-scale"),
        ("output", 12, "output-norm-without-qk-norm"),
        ("one post", 6, "mixed-placement"),
        ("he", 24, "unscaled-residual-init"),
    ],
)
def test_what_trains_is_at_most_a_habit(fault, depth, habit):
    result = language(fault, depth)
    assert alarms(result) == []
    assert habit is None or habit in {f.name for f in result.findings}


def test_a_series_with_a_direction_for_each_number_is_sound():
    assert alarms(scalars("")) == []
