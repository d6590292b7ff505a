"""Rules on precision: formats against torch, and small models that break for the reason named."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from streamgauge.gauge import measure
from streamgauge.preflight import gather
from streamgauge.preflight.origin import trace_origin
from streamgauge.rules import Evidence
from streamgauge.rules.precision.dtypes import FORMATS, half_in_play
from streamgauge.vocabulary import Handling, Norm, Origin, Parameter, Wiring
from streamgauge.wiring import read_wiring

SPEC = importlib.util.spec_from_file_location("small", Path(__file__).with_name("small.py"))
small = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(small)


@pytest.mark.parametrize("name", list(FORMATS))
def test_formats_are_torchs(name):
    dtype, known = getattr(torch, name), FORMATS[name]
    info = torch.finfo(dtype)
    assert known.largest == info.max
    assert known.smallest == info.smallest_normal * info.eps
    tie = torch.tensor(known.smallest / 2, dtype=torch.float64)
    if name != "float64":  # halving its smallest number leaves nothing to round
        assert float(tie.to(dtype)) == 0
        assert known.flushes(float(tie))
        assert float((tie * 1.01).to(dtype)) > 0
        assert not known.flushes(float(tie * 1.01))


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("weight", [1.0, 0.9, 0.05, 3e-3, 117.0])
def test_half_ulp_is_where_an_update_is_lost(name, weight):
    dtype = getattr(torch, name)
    w = torch.tensor(weight, dtype=dtype)
    half = FORMATS[name].half_ulp(float(w))
    assert float((w.double() + 0.99 * half).to(dtype)) == float(w)
    assert float((w.double() + 1.01 * half).to(dtype)) > float(w)


def test_half_in_play():
    weight = (Parameter("w", (2, 2), "float32"),)
    assert half_in_play(Handling(autocast="float16"), weight, None)
    assert half_in_play(Handling(autocast="bfloat16"), weight, None) is False
    assert half_in_play(None, (Parameter("w", (2, 2), "float16"),), None)
    assert half_in_play(None, None, None) is None


class HandNorm(nn.Module):
    """RMSNorm written out, in the dtype of its input."""

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.gain, self.eps = nn.Parameter(torch.ones(32)), eps

    def forward(self, x):
        return x * (x.pow(2).mean(-1, keepdim=True) + self.eps).rsqrt() * self.gain


class Hand(nn.Module):
    """Two blocks with norms by hand on a stream of a given size."""

    def __init__(self, eps: float = 1e-5, scale: float = 1.0, padding: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tok = nn.Embedding(small.VOCAB, 32, padding_idx=0 if padding else None)
        with torch.no_grad():
            self.tok.weight.mul_(scale)
        self.norms = nn.ModuleList(HandNorm(eps) for _ in range(2))
        self.ffn = nn.ModuleList(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(2))
        self.final, self.head = nn.LayerNorm(32), nn.Linear(32, small.VOCAB)

    def forward(self, ids):
        x = self.tok(ids)
        for norm, ffn in zip(self.norms, self.ffn, strict=True):
            x = x + ffn(norm(x))
        return self.head(self.final(x))


def evidence_of(model: nn.Module, **facts: object) -> Evidence:
    wiring = read_wiring(model, small.batch(0)[:, :-1])
    readings = measure(model, wiring, lambda: small.loss_of(model, 0))
    return Evidence(wiring, readings, {"parameters": gather.parameters(model, {}), **facts})


@pytest.mark.parametrize(("half", "eps", "severity"), [(1, 1e-12, "error"), (1, 1e-5, None), (0, 1e-12, None)])
def test_eps_underflow_of_a_real_norm(half, eps, severity):
    model = Hand(eps, padding=True)
    model = model.half() if half else model
    finding = small.found("eps-underflow", evidence_of(model))
    assert (finding and finding.severity) == severity
    loss = float(small.loss_of(model, 0).detach())
    assert (loss != loss) == (severity == "error")


def test_eps_underflow_is_told_from_the_division_where_no_norm_was_read():
    model = Hand(1e-12, padding=True).half()
    origin = trace_origin(model, lambda: small.loss_of(model, 0))
    facts = {"origin": origin, "parameters": gather.parameters(model, {})}
    assert origin.path == "norms.0"
    if origin.zero_divisor:
        assert small.found("eps-underflow", Evidence(Wiring(), {}, facts)).place == "norms.0"


def test_division_by_zero_in_a_layer_with_matrices_is_no_norm():
    parameters = (Parameter("ffn.weight", (4, 4), "float16"), Parameter("ffn.bias", (4,), "float16"))
    facts = {"origin": Origin("div", "ffn", zero_divisor=True), "parameters": parameters}
    assert small.found("eps-underflow", Evidence(Wiring(), {}, facts)) is None


def test_an_eps_of_zero_is_a_remark_until_it_divides():
    wiring = Wiring(norms=(Norm("ln", "rmsnorm", 0.0, 64, "float32", False),))
    assert small.found("eps-underflow", Evidence(wiring)).severity == "info"
    broke = Evidence(wiring, {}, {"origin": Origin("div", "ln", zero_divisor=True)})
    assert small.found("eps-underflow", broke).severity == "error"


@pytest.mark.parametrize(("placement", "norm_first"), [("pre", True), ("post", False)])
@pytest.mark.parametrize(("eps", "severity"), [(1.0, "warning"), (1e-5, None)])
def test_eps_dominates_in_torchs_layers(placement, norm_first, eps, severity):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 2, 64, 0.0, batch_first=True, norm_first=norm_first, layer_norm_eps=eps)
    final = nn.LayerNorm(32) if norm_first else None
    stack = nn.TransformerEncoder(layer, 4, norm=final, enable_nested_tensor=False)
    model = nn.Sequential(nn.Embedding(small.VOCAB, 32), stack, nn.Linear(32, small.VOCAB))
    evidence = evidence_of(model)
    assert {j.placement for j in evidence.wiring.joins} == {placement}
    finding = small.found("eps-dominates", evidence)
    assert (finding and finding.severity) == severity


@pytest.mark.parametrize(("scale", "severity"), [(400.0, "warning"), (1.0, "info")])
def test_half_norm_statistics_of_a_real_stream(scale, severity):
    model = Hand(scale=scale).half()
    assert small.found("half-norm-statistics", evidence_of(model)).severity == severity
    assert small.found("half-norm-statistics", evidence_of(Hand(scale=scale))) is None


@pytest.mark.parametrize(("dtype", "severity"), [(torch.float16, "error"), (torch.bfloat16, None)])
def test_half_overflow_under_autocast(dtype, severity):
    """Branch outputs of 1e5 and more: what one dtype holds and the other does not."""
    model = Hand(scale=1e5)
    with torch.no_grad():
        for ffn in model.ffn:
            ffn[2].weight.mul_(1e6).clamp_(-6e4, 6e4)

    def loss():
        with torch.autocast("cpu", dtype=dtype):
            ids = small.batch(0)
            return cross_entropy(model(ids[:, :-1]).float().flatten(0, 1), ids[:, 1:].flatten())

    wiring = read_wiring(model, small.batch(0)[:, :-1])
    handling = gather.handling(seen=dtype)
    finding = small.found("half-overflow", Evidence(wiring, measure(model, wiring, loss), {"handling": handling}))
    assert (finding and finding.severity) == severity


@pytest.mark.parametrize(("dtype", "lr", "severity"), [("bfloat16", 1e-5, "warning"), ("float32", 1e-5, None)])
def test_lost_updates_are_lost_in_training(dtype, lr, severity):
    model = small.decoder(depth=1).to(getattr(torch, dtype))
    before = [p.detach().clone() for p in model.parameters() if p.dim() > 1]
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.0)
    finding = small.found("lost-updates", small.trained(model, optimizer, 1))
    assert (finding and finding.severity) == severity
    after = [p.detach() for p in model.parameters() if p.dim() > 1]
    pairs = list(zip(before, after, strict=True))
    unchanged = sum(int((a == b).sum()) for a, b in pairs) / sum(a.numel() for a, _ in pairs)
    assert (unchanged > 0.5) == (severity is not None)


@pytest.mark.parametrize("name", ["AdamWKahan", "StochasticAdam", "MasterSGD"])
def test_optimizers_that_keep_the_remainder_are_left_out(name):
    setup = small.trained(model := small.decoder(depth=1).bfloat16(), torch.optim.AdamW(model.parameters(), 1e-5), 1)
    facts = {**setup.facts, "setup": replace(setup.facts["setup"], name=name)}
    assert small.found("lost-updates", Evidence(None, {}, facts)) is None
