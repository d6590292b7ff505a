"""Rules on training dynamics: layers that idle, attention that sharpens, features that outgrow the rest."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import pytest
import torch
from torch import nn

from streamgauge.preflight import probes
from streamgauge.rules import RULES, Evidence, series
from streamgauge.rules.dynamics.layers import skips
from streamgauge.vocabulary import NotAssessed, Place, Probe

SPEC = importlib.util.spec_from_file_location("small", Path(__file__).with_name("small.py"))
small = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(small)


def adamw(model, lr=3e-3):
    return torch.optim.AdamW(model.parameters(), lr=lr)


def with_skips(model: nn.Module, evidence: Evidence, phase: str = "run") -> Evidence:
    """Leave each sublayer of the model out once, at the weights it has now."""
    joins = list(evidence.wiring.joins)
    left_out = probes.skip(model, joins, lambda: small.loss_of(model, 1000))
    return Evidence(evidence.wiring, evidence.readings, {**evidence.facts, "probes": left_out, "phase": phase})


class Along(nn.Module):
    """Blocks whose branch writes the stream itself: the length grows, the final norm divides it out."""

    def __init__(self, along: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.along = along
        self.tok = nn.Embedding(small.VOCAB, 32)
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(4))
        self.ffn = nn.ModuleList(nn.Linear(32, 32) for _ in range(4))
        self.final, self.head = nn.LayerNorm(32), nn.Linear(32, small.VOCAB)
        for layer in self.ffn:
            if along:
                nn.init.eye_(layer.weight)
                layer.weight.requires_grad_(False)

    def forward(self, ids):
        x = self.tok(ids)
        for norm, ffn in zip(self.norms, self.ffn, strict=True):
            x = x + ffn(norm(x))
        return self.head(self.final(x))


@pytest.mark.parametrize(("along", "severity"), [(True, "warning"), (False, None)])
def test_layer_collapse_in_training(along, severity):
    model = Along(along)
    evidence = with_skips(model, small.trained(model, adamw(model, 1e-3), 20))
    finding = small.found("layer-collapse", evidence)
    assert (finding and finding.severity) == severity
    early = Evidence(evidence.wiring, evidence.readings, {**evidence.facts, "phase": "rehearsal"})
    assert isinstance(RULES["layer-collapse"](early), NotAssessed)


@pytest.mark.parametrize(("quiet", "severity"), [(True, "warning"), (False, None)])
def test_redundant_layer_in_training(quiet, severity):
    """Output projections that stay at 1e-5 leave sublayers that nothing misses."""
    model = Along(False)
    if quiet:
        for layer in model.ffn:
            nn.init.normal_(layer.weight, std=1e-5)
            nn.init.zeros_(layer.bias)
            layer.requires_grad_(False)
    finding = small.found("redundant-layer", with_skips(model, small.trained(model, adamw(model), 30)))
    assert (finding and finding.severity) == severity


def test_skips_of_one_block_are_taken_in_order():
    places = (Place(0, "blocks.0"), Place(1, "blocks.0"), Place(2, "blocks.1"))
    left_out = skips((Probe("skip", 0.1, 0, "blocks.0"), Probe("skip", 0.2, 0, "blocks.0")), places)
    assert {index: probe.change for index, probe in left_out.items()} == {0: 0.1, 1: 0.2}
    assert skips((Probe("skip", 0.3, 0, "2"), Probe("future", 9.0)), places).keys() == {2}


def attention_of(model: nn.Module) -> tuple[float, float]:
    """Largest |q k| / sqrt(d) and lowest entropy / log(keys) of one head with weights (q, k), on random tokens."""
    q, k = model
    x = torch.randn(8, 16, 32, generator=torch.Generator().manual_seed(0))
    logits = (x @ q) @ (x @ k).transpose(1, 2) / math.sqrt(32)
    shares = logits.softmax(-1)
    entropy = -(shares * shares.clamp_min(1e-30).log()).sum(-1).mean() / math.log(16)
    return float(logits.abs().max()), float(entropy)


@pytest.mark.parametrize(("growth", "severity"), [(1.25, "warning"), (1.0, None)])
def test_attention_signals_that_a_run_records(growth, severity):
    torch.manual_seed(0)
    q, k = torch.randn(32, 32) / 32, torch.randn(32, 32) / 32

    def record(step, gauge):
        q.mul_(growth)
        logit, entropy = attention_of((q, k))
        gauge.record("attention_logit_max", logit)
        gauge.record("attention_entropy", entropy)

    model = small.decoder(depth=1)
    evidence = small.trained(model, adamw(model), 40, before_step=record, every=50)
    for name in ("attention-logit-growth", "attention-entropy-collapse"):
        finding = small.found(name, evidence)
        assert (finding.severity if finding else None) == severity, name


@pytest.mark.parametrize(("push", "severity"), [(0.5, "warning"), (0.0, None)])
def test_stable_rank_drop_of_a_real_matrix(push, severity):
    model = small.decoder(depth=1)
    matrix = next(p for n, p in model.named_parameters() if p.dim() == 2 and p.shape[0] >= 32 and "ff" in n)
    line = torch.outer(torch.randn(matrix.shape[0]), torch.randn(matrix.shape[1]))

    def record(step, gauge):
        with torch.no_grad():
            matrix.add_(push * line / line.norm())
            gauge.record("stable_rank", float(matrix.square().sum() / torch.linalg.matrix_norm(matrix, 2) ** 2))

    finding = small.found(
        "stable-rank-drop", small.trained(model, adamw(model, 1e-4), 30, before_step=record, every=50)
    )
    assert (finding.severity if finding else None) == severity


@pytest.mark.slow
@pytest.mark.parametrize(("kicks", "severity"), [((60, 90, 120), "warning"), ((60,), "info"), ((), None)])
def test_loss_spikes_in_training(kicks, severity):
    model = small.decoder(depth=1)

    def kick(step):
        if step in kicks:
            with torch.no_grad():
                model.kept = [p.clone() for p in model.parameters()]
                for p in model.parameters():
                    p.add_(0.3 * torch.randn_like(p))
        elif step - 3 in kicks:
            with torch.no_grad():
                for p, old in zip(model.parameters(), model.kept, strict=True):
                    p.copy_(old)

    evidence = small.trained(model, adamw(model), 150, after_step=kick, every=200)
    finding = small.found("loss-spike", evidence)
    assert (finding and finding.severity) == severity
    if finding:
        assert finding.evidence["spikes"].value == len(kicks)


@pytest.mark.parametrize("massive", [True, False])
def test_massive_activations_of_a_real_stream(case, massive):
    model = Along(False)
    with torch.no_grad():
        if massive:
            model.ffn[1].bias[3] = 9000.0
    evidence = small.trained(model, adamw(model), 3, every=1)
    finding = small.found("massive-activations", evidence)
    assert (finding and finding.severity) == ("info" if massive else None)
    stalled = Evidence(None, {**evidence.readings, "loss": case.STALLED}, case.ENTROPY)
    assert (small.found("massive-activations", stalled) is not None) == massive


def test_a_fall_of_the_stable_rank_within_the_window_counts():
    slow = series("stable_rank", [12.0, 11.0, 10.0, 9.0, 8.0], steps=[0, 300, 600, 900, 1200])
    assert small.found("stable-rank-drop", Evidence(None, {"stable_rank": slow})) is None
    fast = series("stable_rank", [12.0, 11.0, 10.0, 9.0, 8.0], steps=[0, 50, 100, 150, 200])
    assert small.found("stable-rank-drop", Evidence(None, {"stable_rank": fast})).severity == "warning"
