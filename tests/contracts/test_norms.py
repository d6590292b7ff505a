"""The contract of every norm in NORMS: a new norm needs its formula in FORMULAS."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import Tensor

from streamgauge import nn

DIM = 64


def layernorm(x: Tensor, eps: float, weight: Tensor, bias: Tensor) -> Tensor:
    centred = x - x.sum(-1, keepdim=True) / x.shape[-1]
    return weight * centred / (centred.pow(2).sum(-1, keepdim=True) / x.shape[-1] + eps) ** 0.5 + bias


def rmsnorm(x: Tensor, eps: float, weight: Tensor) -> Tensor:
    return weight * x / (x.pow(2).sum(-1, keepdim=True) / x.shape[-1] + eps) ** 0.5


FORMULAS = {"layernorm": layernorm, "rmsnorm": rmsnorm}
DEFAULT_EPS = {"layernorm": 1e-5, "rmsnorm": 1e-6}

every_norm = pytest.mark.parametrize("name", list(nn.NORMS))
half = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)


def build(name: str, dtype: torch.dtype = torch.float32, eps: float | None = None) -> torch.nn.Module:
    torch.manual_seed(0)
    norm = nn.NORMS[name](DIM) if eps is None else nn.NORMS[name](DIM, eps=eps)
    with torch.no_grad():
        for p in norm.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return norm.to(dtype)


def formula(norm: torch.nn.Module, x: Tensor) -> Tensor:
    weights = {key: value.double() for key, value in norm.named_parameters()}
    return FORMULAS[norm.kind](x.double(), norm.eps, **weights)


def test_every_norm_has_its_formula_here() -> None:
    assert set(nn.NORMS) == set(FORMULAS)


@every_norm
@pytest.mark.parametrize("eps", [None, 1e-12, 0.5])
def test_is_its_formula(name: str, eps: float | None) -> None:
    norm = build(name, torch.float64, eps)
    assert norm.eps == (DEFAULT_EPS[name] if eps is None else eps)
    x = torch.randn(3, 5, DIM, dtype=torch.float64) + 0.7
    torch.testing.assert_close(norm(x), formula(norm, x), rtol=1e-12, atol=1e-12)


@every_norm
@half
@pytest.mark.parametrize("rms", [3e-3, 1.0, 3000.0])
def test_half_precision_is_right_at_any_scale(name: str, dtype: torch.dtype, rms: float) -> None:
    norm = build(name, dtype)
    x = (rms * torch.randn(4, 7, DIM)).to(dtype)
    y = norm(x)
    assert y.dtype == dtype
    torch.testing.assert_close(y.double(), formula(norm, x), rtol=3 * torch.finfo(dtype).eps, atol=2e-3)


@every_norm
@half
@pytest.mark.parametrize("eps", [None, 1e-12])
def test_a_zero_row_stays_finite_forward_and_backward(name: str, dtype: torch.dtype, eps: float | None) -> None:
    norm = build(name, dtype, eps)
    x = torch.randn(3, DIM).to(dtype)
    x[1] = 0
    x.requires_grad_()
    norm(x).sum().backward()
    assert norm(x).isfinite().all()
    assert x.grad is not None
    assert x.grad[[0, 2]].isfinite().all()
    if eps is None:  # at eps 1e-12 the true gradient of a zero row is 1e6, beyond float16
        assert x.grad.isfinite().all()


@every_norm
@half
def test_float32_weights_on_half_input_keep_the_input_dtype(name: str, dtype: torch.dtype) -> None:
    norm = build(name)
    x = (3000 * torch.randn(4, DIM)).to(dtype)
    assert norm(x).dtype == dtype
    torch.testing.assert_close(norm(x).double(), formula(norm, x), rtol=2 * torch.finfo(dtype).eps, atol=1e-3)


@every_norm
def test_keeps_the_dtype_under_autocast(name: str) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert build(name)(torch.randn(2, DIM)).dtype == torch.float32
        assert build(name)(torch.randn(2, DIM).bfloat16()).dtype == torch.bfloat16


@every_norm
def test_one_token_does_not_touch_another(name: str) -> None:
    norm, x = build(name), torch.randn(1, 6, DIM)
    y = x.clone()
    y[0, 3] += 5.0
    same = [0, 1, 2, 4, 5]
    assert torch.equal(norm(x)[0, same], norm(y)[0, same])


@every_norm
def test_gradients_agree_with_finite_differences(name: str) -> None:
    norm = nn.NORMS[name](5).double()
    assert torch.autograd.gradcheck(norm, torch.randn(2, 5, dtype=torch.float64, requires_grad=True))


@every_norm
def test_starts_at_its_identity_and_returns_to_it(name: str) -> None:
    norm = build(name)
    norm.reset_parameters()
    fresh = nn.NORMS[name](DIM)
    assert all(torch.equal(a, b) for a, b in zip(norm.parameters(), fresh.parameters(), strict=True))
    assert all(p.dim() == 1 for p in norm.parameters())
    assert norm(torch.randn(4, DIM)).pow(2).mean().item() == pytest.approx(1.0, rel=1e-3)


@every_norm
def test_compiles_and_pickles(name: str) -> None:
    norm, x = build(name), torch.randn(3, DIM)
    torch.testing.assert_close(torch.compile(norm, backend="eager", fullgraph=True)(x), norm(x))
    assert torch.equal(pickle.loads(pickle.dumps(norm))(x), norm(x))
