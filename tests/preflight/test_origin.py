from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from streamgauge.preflight.origin import trace_origin


class Attention(nn.Module):
    def __init__(self, fill: float = -math.inf) -> None:
        super().__init__()
        self.qkv, self.fill = nn.Linear(4, 12), fill

    def forward(self, x: Tensor, pad: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        return (q @ k.transpose(1, 2)).masked_fill(pad[:, None, :], self.fill).softmax(-1) @ v


class Model(nn.Module):
    def __init__(self, fill: float = -math.inf) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.attn = nn.Linear(4, 4), Attention(fill)

    def forward(self, x: Tensor, pad: Tensor) -> Tensor:
        return self.attn(self.first(x), pad)


def pads(rows: int) -> Tensor:
    pad = torch.zeros(3, 5, dtype=torch.bool)
    pad[:, 3:] = True
    pad[:rows] = True
    return pad


def test_a_fully_masked_row() -> None:
    model = Model()
    found = trace_origin(model, lambda: model(torch.randn(3, 5, 4), pads(1)).sum(), step=7)
    assert found is not None
    assert (found.op, found.path, found.flow, found.value, found.step) == ("softmax", "attn", "forward", "nan", 7)
    assert found.masked_rows == 5


def test_masks_alone_are_no_origin() -> None:
    model = Model()
    assert trace_origin(model, lambda: model(torch.randn(3, 5, 4), pads(0)).sum()) is None
    assert not model.attn._forward_hooks


@pytest.mark.parametrize("scale", [1e3, -1e3])
def test_half_overflow_is_laid_at_the_product(scale: float) -> None:
    model = nn.Sequential(nn.Linear(64, 64, bias=False), nn.LayerNorm(64)).half()
    with torch.no_grad():
        model[0].weight.fill_(scale)
    found = trace_origin(model, lambda: model(torch.full((2, 64), 10.0).half()).float().sum())
    assert found is not None
    assert (found.op, found.path, found.value, found.dtype) == ("mm", "0", "inf", "float16")
    assert found.largest == pytest.approx(1e3)


def test_eps_that_is_zero_divides_by_zero() -> None:
    class Norm(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x / (x.pow(2).mean(-1, keepdim=True) + 1e-12).sqrt()

    model, x = Norm(), torch.zeros(2, 4, dtype=torch.float16, requires_grad=True)
    found = trace_origin(model, lambda: model(x).float().sum())
    assert found is not None
    assert (found.op, found.zero_divisor, found.dtype) == ("div", True, "float16")


def test_a_backward_that_alone_is_not_finite() -> None:
    x = nn.Parameter(torch.zeros(3))
    found = trace_origin(nn.Identity(), lambda: (x * 0).sqrt().sum())
    assert found is not None
    assert found.flow == "backward"
