"""The contract of every init rule in INITS: a new rule needs its table of stds in STDS."""

from __future__ import annotations

import math

import pytest
import torch

from streamgauge import nn
from streamgauge.nn.site import ROLES

# rule -> std of a matrix, from role, fan in, fan out, width d and depth L of a decoder (two sublayers per block)
STDS = {
    "xavier": lambda role, i, o, d, L: 1 / math.sqrt(d) if role in ("token", "position") else math.sqrt(2 / (i + o)),
    "gpt2": lambda role, i, o, d, L: 0.02 / math.sqrt(2 * L) if role in ("out", "down") else 0.02,
}
UNIFORM = {"xavier"}

every_init = pytest.mark.parametrize("name", list(nn.INITS))


def test_every_rule_has_its_stds_here() -> None:
    assert set(nn.INITS) == set(STDS)


@every_init
@pytest.mark.parametrize("ffn", ["gelu", "swiglu"])
def test_std_of_every_matrix(name: str, ffn: str) -> None:
    torch.manual_seed(0)
    d, depth = 256, 3
    net = nn.Decoder(200, depth, d, 4, "pre", init=name, context=160, ffn=ffn)
    seen = set()
    for matrix, weight in net.matrices():
        std = STDS[name](matrix.role, weight.shape[1], weight.shape[0], d, depth)
        assert weight.std().item() == pytest.approx(std, rel=0.02), matrix
        if name in UNIFORM and matrix.role not in ("token", "position"):
            assert weight.abs().max().item() <= math.sqrt(3) * std
        else:  # of 40,000 normal draws the largest is near 4.3 sigma
            assert weight.abs().max().item() > 3.5 * std
        seen.add(matrix.role)
    assert seen == set(ROLES) - ({"gate"} if ffn == "gelu" else set())


@every_init
def test_biases_start_at_zero(name: str) -> None:
    net = nn.Decoder(11, 2, 8, 2, init=name)
    biases = [p for key, p in net.named_parameters() if key.endswith("bias")]
    assert biases
    assert not any(b.any() for b in biases)


@every_init
def test_the_same_seed_draws_the_same_weights(name: str) -> None:
    nets = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        nets.append(torch.cat([p.flatten() for p in nn.Decoder(11, 2, 8, 2, init=name).parameters()]))
    assert torch.equal(nets[0], nets[1])
    assert not torch.equal(nets[0], nets[2])


@every_init
def test_schemes_of_one_rule_start_from_the_same_draw(name: str) -> None:
    starts = []
    for scheme in ("post", "pre", "b2t"):
        torch.manual_seed(0)
        net = nn.Decoder(11, 2, 8, 2, scheme, init=name)
        starts.append([w.clone() for _, w in net.matrices()])
    assert all(torch.equal(a, b) for other in starts[1:] for a, b in zip(starts[0], other, strict=True))
