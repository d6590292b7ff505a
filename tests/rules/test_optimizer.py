"""Rules on optimizer and schedule: numbers by hand, and small runs that go wrong for the reason named."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from streamgauge.nn import recipe
from streamgauge.rules import RULES, Evidence, series
from streamgauge.rules.optimizer.adam import burst_ratios
from streamgauge.rules.optimizer.motion import median_ratio, step_rms, weighted_median
from streamgauge.rules.optimizer.spikes import spikes
from streamgauge.rules.optimizer.trend import trend
from streamgauge.vocabulary import Handling, NotAssessed, OptimizerSetup, Parameter, ParameterGroup, Schedule

SPEC = importlib.util.spec_from_file_location("small", Path(__file__).with_name("small.py"))
small = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(small)

WEIGHT = Parameter("w", (8, 8), "float32", "Linear", rms=0.1, grad_rms=1e-3)


def adamw(model, lr, **more):
    return torch.optim.AdamW(model.parameters(), lr=lr, **more)


@pytest.mark.parametrize("kind", ["adam", "sgd", "momentum"])
def test_step_is_what_the_optimizer_does(kind):
    """Against torch: the rms of the first update; for momentum that of the steady state under a constant gradient."""
    torch.manual_seed(0)
    w = torch.nn.Parameter(torch.randn(64, 64))
    gradient = 1e-3 * torch.sign(torch.randn(64, 64))
    if kind == "adam":
        optimizer = torch.optim.Adam([w], lr=1e-2, eps=1e-4)
        setup = OptimizerSetup("Adam", beta1=0.9, beta2=0.999, eps=1e-4)
    else:
        momentum = 0.9 if kind == "momentum" else 0.0
        optimizer = torch.optim.SGD([w], lr=1e-2, momentum=momentum)
        setup = OptimizerSetup("SGD", momentum=momentum)
    for _ in range(200 if kind == "momentum" else 1):
        before, w.grad = w.detach().clone(), gradient.clone()
        optimizer.step()
    moved = float((w.detach() - before).square().mean().sqrt())
    parameter = Parameter("w", (64, 64), "float32", rms=1.0, grad_rms=1e-3)
    assert step_rms(parameter, 1e-2, setup) == pytest.approx(moved, rel=0.01)


def test_median_ratio_is_of_the_median_weight():
    small_one = Parameter("v", (2, 2), "float32", rms=1.0, grad_rms=1e-3)
    setup = OptimizerSetup("AdamW", (ParameterGroup(("w", "v"), 1e-4, 1e-3),), 0.9, 0.999, 0.0)
    assert median_ratio((WEIGHT, small_one), setup) == pytest.approx(1e-2)
    assert weighted_median([3.0, 1.0, 2.0], [1, 1, 5]) == 2.0
    assert median_ratio((WEIGHT,), OptimizerSetup("LBFGS", (ParameterGroup(("w",), 1.0),))) is None


def test_trend_of_a_line():
    seen = trend(series("loss", np.linspace(4, 3, 41).tolist()))
    assert (seen.initial, seen.end, seen.steps, seen.broken) == (4.0, pytest.approx(3.1125), 40, None)
    assert seen.noise == pytest.approx(0, abs=1e-9)
    assert trend(series("loss", [4.0, 5.0, float("nan")])).broken == 2


def test_burst_ratio_is_adams_second_moment():
    norms = np.abs(np.random.default_rng(0).standard_normal(50)) + 0.1
    w = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.Adam([w], lr=1.0, betas=(0.9, 0.97))
    for step, norm in enumerate(norms, start=1):
        w.grad = torch.tensor([norm], dtype=torch.float32)
        optimizer.step()
        corrected = float(optimizer.state[w]["exp_avg_sq"]) / (1 - 0.97**step)
        assert burst_ratios(norms, 0.97)[step - 1] == pytest.approx(norm / corrected**0.5, rel=1e-4)


def test_spikes_are_counted_once_each():
    curve = [2.0 + 0.01 * (-1) ** k for k in range(80)]
    curve[30:34] = [5.0, 4.5, 3.5, 2.9]
    curve[76:] = [6.0] * 4
    first, last = spikes(series("loss", curve))
    assert (first.step, first.length, first.recovered) == (30, 3, True)
    assert first.height == pytest.approx(3.0, abs=0.02)
    assert (last.step, last.recovered) == (76, False)
    assert spikes(series("loss", np.linspace(5, 2, 80).tolist())) == []


@pytest.mark.parametrize(
    ("curve", "severity"),
    [
        ([4.0, *[4.4] * 15], "error"),
        ([4.0, *np.linspace(3.9, 3.0, 15)], None),
        ([4.0, 9.0, 8.0, 6.0, 5.0, *[4.0] * 11], "error"),
        ([4.0, 9.0, 8.0, 6.0, 5.0, *[3.0] * 11], None),
        ([4.0, *np.linspace(4, 2, 20), *[3.6] * 12], "error"),
        ([4.0, 4.0], None),
    ],
)
def test_lr_too_high_reads_the_losses(curve, severity):
    evidence = Evidence(None, {"loss": series("loss", list(curve))}, {"setup": None})
    answer = RULES["lr-too-high"](evidence)
    if len(curve) < 8:
        assert isinstance(answer, NotAssessed)
    else:
        assert [f.severity for f in answer] == ([severity] if severity else [])


def test_tiny_steps_are_not_to_blame():
    setup = OptimizerSetup("AdamW", (ParameterGroup(("w",), 1e-8),), 0.9, 0.999, 1e-8)
    loss = {"loss": series("loss", [4.0, *[5.0] * 15])}
    assert small.found("lr-too-high", Evidence(None, loss, {"setup": setup, "parameters": (WEIGHT,)})) is None


@pytest.mark.parametrize(
    ("schedule", "severity"),
    [
        (Schedule("LambdaLR", 99, None, 50.0, tuple((t + 1) / 100 for t in range(100))), "warning"),
        (Schedule("LambdaLR", 99, None, None, tuple((t + 1) / 100 for t in range(100))), None),
        (Schedule("LambdaLR", 5, None, 300.0, tuple(min(1, (t + 1) / 6) for t in range(100))), None),
        (Schedule("LambdaLR", 5, 600, 300.0, tuple(min(1, (t + 1) / 6) for t in range(100))), "warning"),
        (Schedule("StepLR", 0, None, 300.0, (1.0, 1.0, 0.1)), None),
        (Schedule("given", 800, 1000), "warning"),
        (Schedule("given", 100, 1000), None),
    ],
)
def test_warmup_too_slow_reads_the_plan(schedule, severity):
    """300 steps a tick with 6 ticks of warm-up are 5 epochs of vision models: sound unless the run is that short."""
    finding = small.found("warmup-too-slow", Evidence(facts={"schedule": schedule}))
    assert (finding and finding.severity) == severity


@pytest.mark.slow
@pytest.mark.parametrize(("lr", "severity"), [(0.3, "error"), (1e-3, None)])
def test_lr_too_high_in_training(lr, severity):
    model = small.decoder()
    finding = small.found("lr-too-high", small.trained(model, adamw(model, lr), 24))
    assert (finding and finding.severity) == severity


@pytest.mark.slow
@pytest.mark.parametrize(("lr", "severity"), [(1e-8, "warning"), (1e-3, None)])
def test_lr_too_low_in_training(lr, severity):
    model = small.decoder()
    finding = small.found("lr-too-low", small.trained(model, adamw(model, lr), 24))
    assert (finding and finding.severity) == severity


@pytest.mark.slow
def test_post_norm_without_warmup_in_training():
    model = small.decoder("post", 16, init="xavier")
    evidence = small.trained(model, adamw(model, 1e-3), 24)
    assert small.found("post-norm-without-warmup", evidence).severity == "warning"
    shallow = small.decoder("post", 2, init="xavier")
    assert small.found("post-norm-without-warmup", small.trained(shallow, adamw(shallow, 1e-3), 24)).severity == "info"
    warmed = {**evidence.facts, "schedule": Schedule("given", 500)}
    assert small.found("post-norm-without-warmup", Evidence(evidence.wiring, evidence.readings, warmed)) is None


@pytest.mark.slow
@pytest.mark.parametrize(("ticks_every", "severity"), [(40, "warning"), (1, None)])
def test_warmup_too_slow_in_training(ticks_every, severity):
    model = small.decoder(depth=1)
    optimizer = adamw(model, 2e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: min(1.0, (t + 1) / 80))
    tick = lambda step: schedule.step() if (step + 1) % ticks_every == 0 else None  # noqa: E731
    evidence = small.trained(model, optimizer, 120, after_step=tick, every=60, phase="run")
    finding = small.found("warmup-too-slow", Evidence(None, evidence.readings, {**evidence.facts, "schedule": None}))
    assert (finding and finding.severity) == severity


def test_decay_on_gains_of_real_groups():
    model = small.decoder(depth=1)
    one = small.trained(model, adamw(model, 1e-3, weight_decay=0.1), 1)
    finding = small.found("decay-on-gains", one)
    gains = [p for n, p in model.named_parameters() if p.dim() <= 1]
    assert finding.severity == "info"
    assert finding.evidence["vectors"].value == len(gains)
    groups, _ = recipe(model, lr=1e-3)
    assert small.found("decay-on-gains", small.trained(model, torch.optim.AdamW(groups, lr=1e-3), 1)) is None


@pytest.mark.parametrize(("eps", "severity"), [(1e-1, "warning"), (1e-8, None)])
def test_adam_eps_of_a_real_gradient(eps, severity):
    model = small.decoder(depth=1)
    finding = small.found("adam-eps", small.trained(model, adamw(model, 1e-3, eps=eps), 1))
    assert (finding and finding.severity) == severity


@pytest.mark.parametrize(("eps", "severity"), [(1e-8, "error"), (1e-4, None)])
def test_adam_eps_that_is_zero_in_float16_makes_nan(eps, severity):
    model = small.decoder(depth=1).half()
    evidence = small.trained(model, adamw(model, 1e-3, eps=eps), 2)
    finding = small.found("adam-eps", evidence)
    assert (finding and finding.severity) in (severity, "info" if severity is None else severity)
    assert bool(torch.isnan(next(model.parameters())).any()) == (severity == "error")


@pytest.mark.slow
@pytest.mark.parametrize(("beta2", "severity"), [(0.999, "warning"), (0.95, None)])
def test_stale_beta2_in_training(beta2, severity):
    """Two bursts of the gradient that nothing in the loss of their steps announces; spikes follow both."""
    model = small.decoder(depth=1)
    optimizer = adamw(model, 3e-2, betas=(0.9, beta2))

    def burst(step, gauge):
        for p in model.parameters() if step in (60, 130) else ():
            p.grad.mul_(-100)

    evidence = small.trained(model, optimizer, 180, before_step=burst, every=200)
    norms = evidence.readings["grad_norm"].values.copy()
    norms[[60, 130]] *= 100  # the gauge read them before
    readings = {**evidence.readings, "grad_norm": series("grad_norm", norms[:, 0].tolist())}
    finding = small.found("stale-beta2", Evidence(None, readings, evidence.facts))
    assert (finding and finding.severity) == severity


@pytest.mark.parametrize(("clip", "severity"), [(1e-3, "warning"), (100.0, None)])
def test_always_clipping_in_training(clip, severity):
    model = small.decoder(depth=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    limit = lambda step, gauge: torch.nn.utils.clip_grad_norm_(model.parameters(), clip)  # noqa: E731
    evidence = small.trained(model, optimizer, 24, before_step=limit, every=50, handling=Handling(clip=clip))
    finding = small.found("always-clipping", evidence)
    assert (finding and finding.severity) == severity
