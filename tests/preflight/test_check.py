from __future__ import annotations

import json
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import streamgauge as sg
from streamgauge.errors import InputError
from streamgauge.preflight.objective import inputs_of, random_direction


class Block(nn.Module):
    def __init__(self, width: int, skip: bool) -> None:
        super().__init__()
        self.skip = skip
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, 2, dropout=0.1, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm1(x)
        a = self.attn(h, h, h, need_weights=False)[0]
        x = x + a if self.skip else a
        m = self.mlp(self.norm2(x))
        return x + m if self.skip else m


class Model(nn.Module):
    """A hand-written stack with dropout and batch statistics, so that every kind of state can be disturbed."""

    def __init__(self, depth: int = 6, skip: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tok = nn.Embedding(32, 16)
        self.bn = nn.BatchNorm1d(16)
        self.blocks = nn.ModuleList(Block(16, skip) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 32)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.bn(self.tok(ids).transpose(1, 2)).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loss_of(model: nn.Module):
    return lambda ids: F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())


def batches():
    generator = torch.Generator().manual_seed(1)
    while True:
        yield torch.randint(32, (4, 12), generator=generator)


def test_a_fault_is_found_and_the_healthy_twin_is_not_blamed() -> None:
    sick, sound = Model(skip=False), Model(skip=True)
    found = sg.check(sick, loss_of(sick), batches())
    assert found.findings[0].name == "missing-residual"
    assert found.exit_code == 1
    assert found.verdict == "at risk"
    passed = sg.check(sound, loss_of(sound), batches())
    assert [f for f in passed.findings if f.severity != "info"] == []
    assert passed.exit_code == 0
    assert passed.verdict == "not assessed"
    assert passed.probability is None
    assert passed.max_lr is None


def test_the_loss_is_read_from_the_users_loss() -> None:
    model = Model()
    result = sg.check(model.eval(), loss_of(model), batches())
    with torch.no_grad():
        want = loss_of(model)(next(batches()))
    assert float(result.readings["loss"].values[0, 0]) == pytest.approx(float(want), rel=1e-6)


def test_nothing_of_the_model_is_changed() -> None:
    model = Model().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loss_of(model)(next(batches())).backward()
    model.blocks[0].mlp[0].weight.grad = None
    before = {k: v.clone() for k, v in model.state_dict().items()}
    grads = {n: None if p.grad is None else p.grad.clone() for n, p in model.named_parameters()}
    modes = {n: m.training for n, m in model.named_modules()}
    hooks = {n: (len(m._forward_hooks), len(m._forward_pre_hooks)) for n, m in model.named_modules()}
    states = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    sg.check(model, loss_of(model), batches(), optimizer)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (np.random.get_state()[1].tolist(), random.getstate()) == states[1:]
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    for n, p in model.named_parameters():
        assert (p.grad is None) == (grads[n] is None), n
        assert p.grad is None or torch.equal(p.grad, grads[n]), n
    assert {n: m.training for n, m in model.named_modules()} == modes
    assert {n: (len(m._forward_hooks), len(m._forward_pre_hooks)) for n, m in model.named_modules()} == hooks
    assert not optimizer.state


def test_without_a_loss_a_random_direction_is_differentiated() -> None:
    model = Model()
    result = sg.check(model, inputs=(torch.randint(32, (2, 8)),))
    assert "loss" not in result.readings
    assert np.isfinite(result.readings["grad_rms"].values).all()
    assert any("random direction" in note for note in result.notes)


def test_random_direction_is_white_noise_at_the_output() -> None:
    """d loss / d output is standard normal over sqrt(numel): its l2 norm is 1 up to the spread of chi."""
    model = nn.Linear(200, 100, bias=False)
    x = torch.eye(200)
    gradient = torch.autograd.grad(random_direction(model, inputs_of(model, model, x))(), model.weight)[0]
    assert float(gradient.norm()) == pytest.approx(1.0, rel=0.03)


def test_a_meta_model_is_judged_by_its_wiring() -> None:
    with torch.device("meta"):
        model = Model().eval()
    result = sg.check(model, inputs=(torch.zeros(2, 8, dtype=torch.long, device="meta"),))
    assert result.readings == {}
    assert len(result.wiring.joins) == 12
    assert any("only its wiring" in note for note in result.notes)
    assert {n.name for n in result.not_assessed} >= {"token-collapse", "vanishing-gradient"}


def test_select_and_ignore() -> None:
    model = Model(skip=False)
    only = sg.check(model, loss_of(model), batches(), select=["W"])
    assert only.findings[0].name == "missing-residual"
    assert {f.code[0] for f in only.findings} == {"W"}
    rest = sg.check(model, loss_of(model), batches(), select=["W"], ignore=["W001"]).findings
    assert "missing-residual" not in {f.name for f in rest}


def test_json_is_strict_and_whole() -> None:
    model = Model(skip=False)
    answer = json.loads(sg.check(model, loss_of(model), batches()).to_json())
    assert answer["findings"][0]["evidence"]
    assert answer["verdict"]["answer"] == "at risk"
    assert len(answer["wiring"]["unjoined"]) == 12


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: sg.check(m, loss_of(m)), "pass batches"),
        (lambda m: sg.check(m, loss_of(m), []), "batches is empty"),
        (lambda m: sg.check(m, lambda batch: torch.zeros((), requires_grad=True), [1]), "without calling the model"),
        (lambda m: sg.check(m, lambda b: m(b), [torch.randint(32, (2, 8))]), "one number"),
        (lambda m: sg.check("gpt2"), "torch.nn.Module"),
    ],
)
def test_what_cannot_be_used_is_one_line(call, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        call(Model())
    assert "\n" not in str(caught.value)


def test_the_users_own_exception_stays_visible() -> None:
    model = Model()

    def broken(batch: Tensor) -> Tensor:
        raise ZeroDivisionError("in my loss")

    with pytest.raises(ZeroDivisionError, match="in my loss"):
        sg.check(model, broken, batches())
    assert not model._forward_pre_hooks
