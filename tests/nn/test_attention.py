from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from streamgauge import nn
from streamgauge.nn.attention import rope_table, turn


def test_agrees_with_torchs_attention() -> None:
    torch.manual_seed(0)
    ours, peer = nn.Attention(16, 4), torch.nn.MultiheadAttention(16, 4, batch_first=True)
    with torch.no_grad():
        peer.in_proj_bias.normal_()
        peer.out_proj.bias.normal_()
    ours.qkv.load_state_dict({"weight": peer.in_proj_weight, "bias": peer.in_proj_bias})
    ours.out.load_state_dict(peer.out_proj.state_dict())
    x = torch.randn(2, 6, 16)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(6)
    torch.testing.assert_close(ours(x), peer(x, x, x, attn_mask=mask, need_weights=False)[0])
    ours.causal = False
    torch.testing.assert_close(ours(x), peer(x, x, x, need_weights=False)[0])


def test_names_its_matrices_by_role() -> None:
    attention = nn.Attention(8, 2, bias=False)
    parts = attention.matrices()
    assert list(parts) == ["query", "key", "value", "out"]
    assert torch.equal(torch.cat([parts["query"], parts["key"], parts["value"]]), attention.qkv.weight)
    assert attention.qkv.bias is None


def test_rope_is_a_complex_rotation() -> None:
    """Pair (i, i + size/2) as a complex number times exp(i t / 10000^(2i/size))."""
    size, length = 8, 5
    x = torch.randn(2, 3, length, size, dtype=torch.float64)
    z = torch.complex(x[..., :4], x[..., 4:])
    rate = torch.tensor([10_000 ** (-2 * i / size) for i in range(4)], dtype=torch.float64)
    z = z * torch.exp(1j * torch.arange(length)[:, None] * rate)
    cos, sin = rope_table(length, size).double()
    torch.testing.assert_close(turn(x, cos, sin), torch.cat([z.real, z.imag], -1), rtol=1e-6, atol=1e-6)


def test_rope_scores_depend_on_the_distance_alone() -> None:
    cos, sin = rope_table(20, 8).double()
    q, k = torch.randn(1, 1, 1, 8, dtype=torch.float64), torch.randn(1, 1, 1, 8, dtype=torch.float64)
    at = [(turn(q, cos[t], sin[t]) * turn(k, cos[t - 3], sin[t - 3])).sum().item() for t in (3, 9, 19)]
    assert at[0] == pytest.approx(at[1], rel=1e-5)
    assert at[0] == pytest.approx(at[2], rel=1e-5)


def test_dropout_works_in_training_only() -> None:
    attention = nn.Attention(8, 2, dropout=0.5)
    x = torch.randn(1, 5, 8)
    assert not torch.equal(attention(x), attention(x))
    attention.eval()
    assert torch.equal(attention(x), attention(x))


@pytest.mark.parametrize("kind", ["gelu", "swiglu"])
def test_feed_forward_is_its_formula(kind: str) -> None:
    f = {"gelu": nn.FeedForward, "swiglu": nn.SwiGLU}[kind](6, 10)
    x = torch.randn(2, 3, 6)
    w = f.state_dict()
    u = x @ w["up.weight"].T + w["up.bias"]
    if kind == "gelu":
        u = u * 0.5 * (1 + torch.erf(u / math.sqrt(2)))
    else:
        u = u[..., :10] * torch.sigmoid(u[..., :10]) * u[..., 10:]
    torch.testing.assert_close(f(x, rope="ignored"), F.linear(u, w["down.weight"], w["down.bias"]))
