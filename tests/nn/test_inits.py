from __future__ import annotations

import math

import pytest
import torch

from streamgauge import nn
from streamgauge.nn.site import Matrix, Site

SITE = Site(0, 12, 256)


def test_xavier_gain_on_q_k_v_alone() -> None:
    """fairseq's 1/sqrt(2) equals one Xavier draw of the fused (d, 3d) matrix: sqrt(2 / (d + 3d))."""
    rule = nn.xavier(qkv_gain=2**-0.5)
    assert rule.std(Matrix("query", 256, 256, SITE)) == pytest.approx(math.sqrt(2 / (256 + 3 * 256)))
    assert rule.std(Matrix("out", 256, 256, SITE)) == pytest.approx(1 / 16)


def test_xavier_is_torchs() -> None:
    torch.manual_seed(0)
    ours, peer = torch.empty(300, 200), torch.empty(300, 200)
    nn.xavier().fill(ours, Matrix("up", 200, 300, SITE))
    torch.manual_seed(0)
    torch.nn.init.xavier_uniform_(peer)
    torch.testing.assert_close(ours, peer)


def test_gpt2_scales_only_what_is_added_to_a_stream() -> None:
    rule = nn.gpt2()
    assert rule.std(Matrix("down", 1024, 256, SITE)) == pytest.approx(0.02 / math.sqrt(24))
    assert rule.std(Matrix("down", 1024, 256, SITE, residual=False)) == 0.02
    assert nn.gpt2(sigma=0.01).std(Matrix("up", 256, 1024, SITE)) == 0.01


def test_gain_multiplies_the_std_and_zero_gives_zeros() -> None:
    weight = torch.empty(200, 200)
    nn.gpt2().fill(weight, Matrix("up", 200, 200, SITE), gain=10.0)
    assert weight.std().item() == pytest.approx(0.2, rel=0.02)
    for rule in nn.INITS.values():
        rule.fill(weight, Matrix("up", 200, 200, SITE), gain=0.0)
        assert not weight.any()


def test_only_xavier_scales_the_token_embedding() -> None:
    """With N(0, 1/d) times sqrt(d) the embedded tokens have unit variance; GPT-2's are left at 0.02."""
    torch.manual_seed(0)
    for init, std in (("xavier", 1.0), ("gpt2", 0.02)):
        seen = []
        net = nn.Decoder(500, 1, 64, 2, init=init, positions="none")
        net.stack.register_forward_pre_hook(lambda module, args, seen=seen: seen.append(args[0]))
        net(torch.arange(200)[None])
        assert seen[0].std().item() == pytest.approx(std, rel=0.03)
