from __future__ import annotations

import pytest
import torch

from streamgauge import nn
from streamgauge.nn.joins import declared
from streamgauge.nn.norms import choose_norm

SITE = nn.Site(0, 4, 8)
NORM = choose_norm("layernorm")


@pytest.mark.parametrize("join", [nn.NoResidual, nn.PreNorm, nn.PostNorm, nn.Sandwich])
def test_leaves_the_stream_it_was_given_alone(join: type) -> None:
    x = torch.randn(2, 3, 8)
    kept = x.clone()
    y = join(SITE, NORM)(x, lambda u: u * 2)
    assert torch.equal(x, kept)
    assert y.data_ptr() != x.data_ptr()


def test_each_makes_one_join_per_sublayer_and_folds_them_in_order() -> None:
    site = nn.Site(0, 4, 8, ("attention", "cross-attention", "ffn"))
    slots: list[int] = []

    class Shift(torch.nn.Module):
        def __init__(self, site: nn.Site, norm: object) -> None:
            super().__init__()
            slots.append(site.slot)

        def forward(self, x: torch.Tensor, f: object) -> torch.Tensor:
            return 10 * x + f(x)

    folded = nn.each(Shift)(site, NORM)
    assert slots == [0, 1, 2]
    x = folded(torch.zeros(()), [lambda x: 1, lambda x: 2, lambda x: 3])
    assert x.item() == 123


def test_each_refuses_a_wrong_number_of_sublayers() -> None:
    with pytest.raises(ValueError, match="longer"):
        nn.each(nn.PreNorm)(SITE, NORM)(torch.zeros(1, 1, 8), [lambda x: x] * 3)


def test_b2t_with_cross_attention_adds_the_block_input_before_the_last_norm_only() -> None:
    """h1 = N1(x + f1(x)),  h2 = N2(h1 + f2(h1)),  y = N3(x + h2 + f3(h2))."""
    join = nn.B2T(nn.Site(0, 4, 8, ("attention", "cross-attention", "ffn")), NORM).double()
    fs = [torch.nn.Linear(8, 8).double() for _ in range(3)]
    x = torch.randn(2, 3, 8, dtype=torch.float64)
    n1, n2, n3 = join.norms
    h1 = n1(x + fs[0](x))
    h2 = n2(h1 + fs[1](h1))
    torch.testing.assert_close(join(x, fs), n3(x + h2 + fs[2](h2)))


def test_b2t_keeps_a_path_around_every_norm_but_the_last() -> None:
    """With dead sublayers y = N(x + N(x)): the Jacobian holds the long skip, which Post-LN's N(N(x)) lacks."""
    x = (5 * torch.randn(8, dtype=torch.float64)).requires_grad_()
    dead = [torch.zeros_like, torch.zeros_like]
    b2t = nn.B2T(SITE, NORM).double()
    jacobian = torch.autograd.functional.jacobian(lambda x: b2t(x, dead), x)
    post = nn.each(nn.PostNorm)(SITE, NORM).double()
    plain = torch.autograd.functional.jacobian(lambda x: post(x, dead), x)
    # both are the projection off the mean and off x, over the std of the summed state: x + N(x) against x
    std = x.std(unbiased=False)
    torch.testing.assert_close(jacobian, plain * (std / (std + 1)) * (1 + 1 / std), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("u", "v", "phi"), [(1.0, 1.0, 1.0), (0.5, 3.0, 1.0), (1.0, 9.0, 0.3)])
def test_gradient_retention_of_a_cross_attention_block(u: float, v: float, phi: float) -> None:
    """One block with linear self-attention and FFN of variance u, phi and a branch of variance v without gradient.

    Post-LN keeps 1 / (1 + v) of the squared gradient, however large v is. B2T keeps ((1 + k)^2 + k^2 (phi + u + phi u))
    / (2 + 2k + phi), k = ((1 + u)(1 + v))^-1/2, which stays above 1 / (2 + phi).
    """
    torch.manual_seed(0)
    d, site = 512, nn.Site(0, 1, 512, ("attention", "cross-attention", "ffn"))
    first, last = (torch.randn(d, d) * (scale / d) ** 0.5 for scale in (u, phi))
    memory = v**0.5 * torch.randn(16, d)
    fs = [lambda x: x @ first, lambda x: memory, lambda x: x @ last]

    def kept(join: torch.nn.Module) -> float:
        x = torch.randn(16, d, requires_grad=True)
        y = join(x, fs)
        delta = torch.randn_like(y)
        (g,) = torch.autograd.grad(y, x, delta)
        return (g.square().sum() / delta.square().sum()).item()

    k = ((1 + u) * (1 + v)) ** -0.5
    expected = ((1 + k) ** 2 + k**2 * (phi + u + phi * u)) / (2 + 2 * k + phi)
    assert kept(nn.B2T(site, NORM)) == pytest.approx(expected, rel=0.05)
    assert kept(nn.each(nn.PostNorm)(site, NORM)) == pytest.approx(1 / (1 + v), rel=0.05)


@pytest.mark.parametrize(
    ("norm", "expected"),
    [
        (nn.LayerNorm(4, eps=1e-3), ("pre", "layernorm", 1e-3)),
        (torch.nn.RMSNorm(4, eps=1e-6), ("pre", "rmsnorm", 1e-6)),
        (torch.nn.Identity(), ("none", None, None)),
        (torch.nn.Tanh(), ("unrecognised", None, None)),
    ],
)
def test_declares_what_the_norm_is(norm: torch.nn.Module, expected: tuple) -> None:
    join = declared("pre", norm, "ffn")
    assert (join.placement, join.norm, join.eps) == expected
    assert join.kind == "ffn"
