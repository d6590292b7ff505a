"""Small models written by hand, with the wiring that a reader would give for them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from streamgauge.vocabulary import Join, Tap, Wiring


class Add(nn.Module):
    """x + f(norm(x)), or in place."""

    def __init__(self, width: int, in_place: bool = False) -> None:
        super().__init__()
        self.norm, self.f, self.in_place = nn.LayerNorm(width), nn.Linear(width, width), in_place

    def forward(self, x: Tensor) -> Tensor:
        if self.in_place:
            x += self.f(self.norm(x + 0))  # the norm keeps its input, so it gets a copy
            return x
        return x + self.f(self.norm(x))


class Toy(nn.Module):
    """Embedding, blocks, head; dropout so that a random number drawn by a watcher would show."""

    def __init__(self, depth: int, width: int, in_place: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, width)
        self.drop = nn.Dropout(0.1)
        self.blocks = nn.Sequential(*(Add(width, in_place) for _ in range(depth)))
        self.head = nn.Linear(width, 11)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.blocks(self.drop(self.embed(ids))))


def wiring(depth: int) -> Wiring:
    return Wiring(joins=tuple(add_join(k, f"blocks.{k}") for k in range(depth)))


def add_join(index: int, path: str, **fields: object) -> Join:
    taps = {"stream_tap": Tap(path, "input"), "branch_tap": Tap(f"{path}.f", "output"), "out_tap": Tap(path, "output")}
    given = {"placement": "pre", "norm": "layernorm", "eps": 1e-5, "kind": "ffn", **taps, **fields}
    return Join(index, path, **given)  # type: ignore[arg-type]


def batch(seed: int, rows: int = 4, tokens: int = 6) -> Tensor:
    return torch.randint(0, 11, (rows, tokens), generator=torch.Generator().manual_seed(seed))


def loss_of(model: nn.Module, ids: Tensor) -> Tensor:
    return F.cross_entropy(model(ids).flatten(0, 1).float(), ids.flatten())


def build(depth: int = 3, width: int = 8, in_place: bool = False) -> Toy:
    torch.manual_seed(0)
    return Toy(depth, width, in_place)


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    steps: int,
    gauge: object = None,
    first: int = 0,
    each: Callable[[int], None] = lambda step: None,
) -> list[float]:
    """The losses of a plain loop, with a gauge in it or not."""
    losses = []
    for step in range(first, first + steps):
        loss = loss_of(model, batch(step))
        optimizer.zero_grad()
        loss.backward()
        if gauge is not None:
            gauge.step(loss)  # type: ignore[attr-defined]
        optimizer.step()
        losses.append(loss.item())
        each(step)
    return losses


@pytest.fixture
def toy() -> SimpleNamespace:
    return SimpleNamespace(
        adam=adam, batch=batch, build=build, join=add_join, loss_of=loss_of, train=train, wiring=wiring
    )
