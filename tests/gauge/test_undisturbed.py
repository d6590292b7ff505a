"""Nothing that a run of the model changes outlives `undisturbed`."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from streamgauge.gauge import measure, watch
from streamgauge.gauge.undisturbed import undisturbed


class Restless(nn.Module):
    """Draws from all three generators and keeps averages, assigned anew, written in place, and made on first use."""

    def __init__(self, toy: nn.Module) -> None:
        super().__init__()
        self.toy = toy
        self.register_buffer("ema", torch.zeros(()))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.register_buffer("late", None)

    def forward(self, ids: Tensor) -> Tensor:
        noise = random.random() + np.random.rand() + torch.rand(())
        out = self.toy(ids) + noise * self.ema
        self.ema = 0.9 * self.ema + 0.1 * out.detach().mean()
        self.count += 1
        self.late = self.ema * 2 if self.late is None else self.late + 1
        return out


def seed() -> None:
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)


def states() -> tuple[object, ...]:
    return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()


def test_random_states_and_buffers_are_put_back(toy: SimpleNamespace) -> None:
    seed()
    model = Restless(toy.build())
    before, objects = states(), dict(model._buffers)
    with undisturbed(model):
        model(toy.batch(0))
        assert states() != before
        assert model.ema is not objects["ema"]
    assert states() == before
    assert all(model._buffers[name] is tensor for name, tensor in objects.items())
    assert (model.ema.item(), model.count.item(), model.late) == (0.0, 0, None)


def break_after(model: nn.Module, ids: Tensor) -> None:
    model(ids)
    raise KeyError


def test_put_back_after_an_exception_too(toy: SimpleNamespace) -> None:
    model = Restless(toy.build())
    before = states()
    with pytest.raises(KeyError), undisturbed(model):
        break_after(model, toy.batch(0))
    assert states() == before
    assert model.count.item() == 0


def test_losses_of_a_restless_model_are_equal_with_and_without(toy: SimpleNamespace) -> None:
    found = []
    for watched in (False, True):
        model = Restless(toy.build())
        optimizer = toy.adam(model)
        seed()
        if watched:
            with watch(model, optimizer, every=2) as gauge:
                losses = toy.train(model, optimizer, 5, gauge)
            assert gauge.readings("stream_rms").values.shape == (3, 3)
        else:
            losses = toy.train(model, optimizer, 5)
        found.append((losses, states(), model.ema.item(), model.count.item()))
    assert found[0] == found[1]


def test_measure_leaves_no_trace(toy: SimpleNamespace) -> None:
    model = Restless(toy.build())
    before = states()
    measure(model, toy.wiring(0), lambda: toy.loss_of(model, toy.batch(0)))
    assert states() == before
    assert model.count.item() == 0
    assert model.late is None
