"""Whatever a forward does to its module and to the random generators is undone, object for object."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from streamgauge.wiring import guess_inputs, read_wiring

D = 8


class Writes(nn.Module):
    """A residual block whose forward first does something to the module."""

    def __init__(self, does: Callable[[Any], object]) -> None:
        super().__init__()
        self.does, self.ffn = does, nn.Linear(D, D)
        self.register_buffer("ema", torch.arange(3.0))
        self.register_buffer("late", None)
        self.count, self.cache = 0, None

    def forward(self, x: Tensor) -> Tensor:
        self.does(self)
        return x + self.ffn(x)


def inplace_then_new(m: Any) -> None:
    m.ema.mul_(2)
    m.ema = m.ema + 1


def register(m: Any) -> None:
    m.register_buffer("mask", torch.ones(2))
    m.count += 1


DEEDS = {
    "buffer in place": lambda m: m.ema.add_(1),
    "buffer assigned": lambda m: setattr(m, "ema", 0.9 * m.ema + 0.1),
    "buffer in place, then assigned": inplace_then_new,
    "buffer filled": lambda m: setattr(m, "late", torch.ones(2)),
    "buffer emptied": lambda m: setattr(m, "ema", None),
    "buffer registered": register,
    "parameter assigned": lambda m: setattr(m.ffn, "bias", nn.Parameter(torch.ones(D))),
    "module added": lambda m: m.add_module("more", nn.Linear(2, 2)),
    "module replaced": lambda m: setattr(m, "ffn", nn.Linear(D, D)),
    "counter": lambda m: setattr(m, "count", m.count + 1),
    "cache": lambda m: setattr(m, "cache", torch.ones(1)),
    "new attribute": lambda m: setattr(m, "seen", True),
    "mode": lambda m: m.train(),
}


def state(model: nn.Module) -> list[tuple[str, str, int, Any]]:
    """Each entry of each module by identity, and the values of buffers."""
    found: list[tuple[str, str, int, Any]] = []
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            table = value if name in ("_buffers", "_parameters", "_modules") else {name: value}
            found += [(path, key, id(item), None) for key, item in table.items()]
        found += [(path, k, 0, b.tolist()) for k, b in module.named_buffers(recurse=False)]
    return found


@pytest.mark.parametrize("deed", DEEDS)
@pytest.mark.parametrize("read", [lambda m: read_wiring(m, torch.ones(2, D)), guess_inputs], ids=["read", "guess"])
def test_the_module_is_left_object_for_object(deed: str, read: Callable[[nn.Module], object]) -> None:
    does = DEEDS[deed]
    model = nn.Sequential(nn.Linear(D, D), Writes(does)).train(deed != "mode")
    before = state(model)
    does(model[1])
    assert state(model) != before
    model = nn.Sequential(nn.Linear(D, D), Writes(does)).train(deed != "mode")
    before = state(model)
    read(model)
    assert state(model) == before


@pytest.mark.parametrize("draw", [random.random, np.random.rand, lambda: torch.rand(1).item()])
def test_random_states_are_left(draw: Callable[[], float]) -> None:
    random.seed(0), np.random.seed(0), torch.manual_seed(0)
    expected = draw()
    random.seed(0), np.random.seed(0), torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(D, D), Writes(lambda m: draw()))
    random.seed(0), np.random.seed(0), torch.manual_seed(0)
    read_wiring(model, torch.ones(2, D))
    guess_inputs(model)
    assert draw() == expected
