from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from streamgauge.errors import InputError
from streamgauge.gauge import SIGNALS, measure
from streamgauge.vocabulary import Wiring


def test_every_place_signal_and_three_of_the_run(toy: SimpleNamespace) -> None:
    model = toy.build()
    found = measure(model, toy.wiring(3), lambda: toy.loss_of(model, toy.batch(0)))
    places = {name for name, s in SIGNALS.items() if s.level == "place"}
    assert set(found) == places | {"loss", "grad_norm", "retention_total"}
    for name, readings in found.items():
        assert readings.values.shape == (1, 3 if name in places else 1)
        assert np.isfinite(readings.values).all(), name
        assert readings.steps.tolist() == [0]


def test_loss_and_norm_are_those_of_a_backward(toy: SimpleNamespace) -> None:
    model = toy.build().eval()
    found = measure(model, toy.wiring(3), lambda: toy.loss_of(model, toy.batch(0)))
    loss = toy.loss_of(model, toy.batch(0))
    loss.backward()
    norm = torch.cat([p.grad.flatten() for p in model.parameters()]).norm().item()
    assert found["loss"].values[0, 0] == pytest.approx(loss.item(), rel=1e-6)
    assert found["grad_norm"].values[0, 0] == pytest.approx(norm, rel=1e-5)


class Counting(nn.Module):
    """A model with everything that could be left changed: dropout, batch statistics, gradients, hooks on them."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(11, 4), nn.BatchNorm1d(4)
        self.drop, self.head = nn.Dropout(0.5), nn.Linear(4, 11)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, ids: Tensor) -> Tensor:
        self.calls += 1
        return self.head(self.drop(self.norm(self.embed(ids).transpose(1, 2)).transpose(1, 2)))


def test_nothing_is_left_changed(toy: SimpleNamespace) -> None:
    model = Counting()
    toy.loss_of(model, toy.batch(1)).backward()
    model.head.weight.grad = None
    accumulated = []
    model.embed.weight.register_post_accumulate_grad_hook(accumulated.append)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    grads = {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}
    kept = {name: p.grad for name, p in model.named_parameters()}
    draws = torch.get_rng_state()
    measure(model, Wiring(), lambda: toy.loss_of(model, toy.batch(0)))
    assert torch.equal(torch.get_rng_state(), draws)
    assert model.training
    assert accumulated == []
    assert not model._forward_pre_hooks
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name]), name
    for name, p in model.named_parameters():
        assert p.grad is kept[name]
        assert p.grad is None or torch.equal(p.grad, grads[name])


def test_it_works_inside_no_grad(toy: SimpleNamespace) -> None:
    model = toy.build()
    with torch.no_grad():
        found = measure(model, toy.wiring(3), lambda: toy.loss_of(model, toy.batch(0)))
        assert not torch.is_grad_enabled()
    assert found["retention"].values.shape == (1, 3)


def test_a_failing_loss_leaves_no_hook(toy: SimpleNamespace) -> None:
    model = toy.build()

    def broken() -> Tensor:
        model(toy.batch(0))
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        measure(model, toy.wiring(3), broken)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        (lambda: 1.5, "returned float; it must return a tensor of one number"),
        (lambda: torch.ones(3), r"returned shape \(3,\)"),
        (lambda: torch.ones(()), "does not depend on any trainable parameter"),
    ],
)
def test_a_loss_that_is_none_gives_one_line(toy: SimpleNamespace, loss: object, says: str) -> None:
    with pytest.raises(InputError, match=says):
        measure(toy.build(), toy.wiring(3), loss)  # type: ignore[arg-type]


def test_what_no_tap_shows_is_nan(toy: SimpleNamespace) -> None:
    model = toy.build(depth=2)
    wiring = Wiring(joins=(toy.join(0, "blocks.0", branch_tap=None), toy.join(1, "blocks.1")))
    found = measure(model, wiring, lambda: toy.loss_of(model, toy.batch(0)))
    assert np.isnan(found["branch_ratio"].values[0]).tolist() == [True, False]
    assert np.isfinite(found["cosine_excess"].values).all()
