"""Known answers for the signals of the backward pass, through a measured model."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from streamgauge.gauge import measure
from streamgauge.vocabulary import Join, Tap, Wiring


class Chain(nn.Module):
    """x <- W_k x, or x <- x + W_k x, over orthogonal matrices with all singular values `gain`."""

    def __init__(self, gains: list[float], skip: bool, width: int = 16) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(7, width)
        self.links = nn.ModuleList(Link(width, gain, skip) for gain in gains)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for link in self.links:
            x = link(x)
        return x


class Link(nn.Module):
    def __init__(self, width: int, gain: float, skip: bool) -> None:
        super().__init__()
        self.f, self.skip = nn.Linear(width, width, bias=False), skip
        with torch.no_grad():
            if skip:  # antisymmetric: x and W x are orthogonal, and so are g and W^T g
                a = torch.zeros(width, width)
                for i in range(0, width, 2):
                    a[i, i + 1], a[i + 1, i] = gain, -gain
                self.f.weight.copy_(a)
            else:
                self.f.weight.copy_(gain * nn.init.orthogonal_(torch.empty(width, width)))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.f(x) if self.skip else self.f(x)


def wired(depth: int, skip: bool) -> Wiring:
    sublayers = tuple(
        Join(
            k,
            f"links.{k}",
            "none",
            stream_tap=Tap(f"links.{k}", "input"),
            branch_tap=Tap(f"links.{k}.f", "output"),
            out_tap=Tap(f"links.{k}", "output"),
        )
        for k in range(depth)
    )
    return Wiring(joins=sublayers) if skip else Wiring(unjoined=sublayers)


IDS = torch.arange(6).reshape(2, 3)
WEIGHT = torch.randn(2, 3, 16, generator=torch.Generator().manual_seed(5))


def test_retention_of_a_linear_map_is_its_singular_value() -> None:
    gains = [0.5, 2.0, 0.1]
    chain = Chain(gains, skip=False)
    found = measure(chain, wired(3, False), lambda: (chain(IDS) * WEIGHT).sum())
    assert found["retention"].values[0] == pytest.approx(gains, rel=1e-5)
    assert found["retention_total"].values[0, 0] == pytest.approx(0.5 * 2.0 * 0.1, rel=1e-5)
    assert found["branch_ratio"].values[0] == pytest.approx(gains, rel=1e-5)


def test_retention_at_a_skip_is_sqrt_of_one_plus_the_branch_square() -> None:
    gains = [0.5, 1.0, 2.0]
    chain = Chain(gains, skip=True)
    found = measure(chain, wired(3, True), lambda: (chain(IDS) * WEIGHT).sum())
    assert found["retention"].values[0] == pytest.approx([(1 + g * g) ** 0.5 for g in gains], rel=1e-5)
    assert found["cosine"].values[0] == pytest.approx([(1 + g * g) ** -0.5 for g in gains], rel=1e-5)
    assert found["cosine_excess"].values[0] == pytest.approx([0.0] * 3, abs=1e-6)


def test_grad_rms_is_that_of_the_stream_leaving_the_join() -> None:
    chain = Chain([0.5, 2.0], skip=False)
    found = measure(chain, wired(2, False), lambda: (chain(IDS) * WEIGHT).sum())
    last = WEIGHT.double().square().mean().sqrt().item()
    assert found["grad_rms"].values[0] == pytest.approx([2.0 * last, last], rel=1e-5)
    assert found["grad_rms"].unit == "loss"


def test_gradients_far_below_single_precision_squares_are_seen() -> None:
    chain = Chain([1e-9, 1e-9, 1e-9], skip=False)
    found = measure(chain, wired(3, False), lambda: (chain(IDS) * WEIGHT).sum())
    assert found["retention_total"].values[0, 0] == pytest.approx(1e-27, rel=1e-4)


def test_retention_follows_finite_differences(toy: SimpleNamespace) -> None:
    model, ids = toy.build(width=4).double().eval(), toy.batch(0, rows=1, tokens=3)
    found = measure(model, toy.wiring(3), lambda: toy.loss_of(model, ids))
    streams = [model.embed(ids).detach()]
    for block in model.blocks:
        streams.append(block(streams[-1]).detach())
    rms = [slope(model, k, streams[k], ids).square().mean().sqrt().item() for k in range(4)]
    assert found["retention"].values[0] == pytest.approx([rms[k] / rms[k + 1] for k in range(3)], rel=1e-5)
    assert found["grad_rms"].values[0] == pytest.approx(rms[1:], rel=1e-5)


def slope(model: nn.Module, k: int, x: Tensor, ids: Tensor) -> Tensor:
    """dL/dx by central differences, x the stream after k blocks."""
    found = torch.empty(x.numel(), dtype=x.dtype)
    for i in range(x.numel()):
        values = []
        for sign in (1, -1):
            y = x.clone()
            y.view(-1)[i] += sign * 1e-5
            for block in model.blocks[k:]:
                y = block(y)
            values.append(torch.nn.functional.cross_entropy(model.head(y).flatten(0, 1), ids.flatten()).item())
        found[i] = (values[0] - values[1]) / 2e-5
    return found
