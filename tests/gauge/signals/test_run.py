from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from streamgauge.errors import InputError
from streamgauge.gauge.signals import grad_norm, loss, lr, tokens_per_s


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_grad_norm_is_the_length_of_all_gradients_together(dtype: torch.dtype) -> None:
    parts = [torch.tensor([3.0, 0.0], dtype=dtype), torch.tensor([[4.0], [12.0]], dtype=dtype)]
    assert grad_norm(parts).item() == pytest.approx(13.0, rel=1e-6)


def test_grad_norm_of_half_precision_is_not_rounded_to_it() -> None:
    parts = [torch.full((1000,), 0.1, dtype=torch.bfloat16)] * 3
    value = parts[0][0].item()
    assert grad_norm(parts).item() == pytest.approx(value * math.sqrt(3000), rel=1e-6)


def test_grad_norm_takes_mixed_dtypes_and_matches_torch() -> None:
    draw = torch.Generator().manual_seed(0)
    parts = [torch.randn(5, 7, generator=draw), torch.randn(3, generator=draw, dtype=torch.float64)]
    assert grad_norm(parts).item() == pytest.approx(torch.cat([p.double().flatten() for p in parts]).norm().item())


def test_grad_norm_adds_the_rows_of_a_sparse_gradient() -> None:
    table = nn.Embedding(5, 2, sparse=True)
    table(torch.tensor([1, 1, 3])).sum().backward()
    assert grad_norm([table.weight.grad]).item() == pytest.approx(math.sqrt(2 * 2**2 + 2 * 1**2), rel=1e-6)


def test_without_gradients_there_is_no_norm() -> None:
    assert grad_norm([]) is None


def test_lr_is_the_largest_of_the_groups() -> None:
    assert lr([{"lr": 0.1}, {"lr": 0.3}]) == 0.3
    assert float(lr([{"lr": torch.tensor(0.1)}, {"lr": 0.25}])) == pytest.approx(0.25)


def test_loss_is_one_number() -> None:
    assert loss(torch.tensor([[2.5]], requires_grad=True)).item() == 2.5
    assert loss(1) == 1.0
    with pytest.raises(InputError, match=r"shape \(4,\); take its mean"):
        loss(torch.ones(4))


def test_tokens_per_second() -> None:
    assert tokens_per_s(600, 0.25) == 2400.0
