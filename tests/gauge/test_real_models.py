"""The gauge with the wiring read off the graph, on models of others."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from streamgauge.gauge import Gauge, measure, watch
from streamgauge.wiring import read_wiring

PLACE = ("stream_rms", "branch_ratio", "cosine", "cosine_excess", "token_cosine", "grad_rms", "retention")


class Pre(nn.Module):
    """A Pre-LN stack written by hand, two joins per block, the additions in the block's forward."""

    def __init__(self, depth: int = 3, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Embedding(17, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * depth))
        self.attns = nn.ModuleList(nn.MultiheadAttention(width, 4, batch_first=True) for _ in range(depth))
        self.ffns = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width)) for _ in range(depth)
        )
        self.final, self.head = nn.LayerNorm(width), nn.Linear(width, 17)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for k, (attn, ffn) in enumerate(zip(self.attns, self.ffns, strict=True)):
            h = self.norms[2 * k](x)
            x = x + attn(h, h, h, need_weights=False)[0]
            x = x + ffn(self.norms[2 * k + 1](x))
        return self.head(self.final(x))


def loss_of(logits: Tensor, ids: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten())


def test_a_stack_written_by_hand_is_watched_without_being_told(tmp_path: object) -> None:
    torch.manual_seed(0)
    model, ids = Pre(), torch.randint(0, 17, (4, 12))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with watch(model, optimizer, every=2) as gauge:
        for _ in range(3):
            optimizer.zero_grad()
            loss = loss_of(model(ids), ids)
            loss.backward()
            gauge.step(loss)
            optimizer.step()
    assert gauge.wiring is not None
    assert [join.kind for join in gauge.wiring.joins] == ["attention", "ffn"] * 3
    assert gauge.readings("stream_rms").values.shape == (2, 6)
    for name in PLACE:
        assert np.isfinite(gauge.readings(name).values).all(), name
    # independent increments at init: no excess; a Pre-LN stream never shrinks a gradient much
    assert np.abs(gauge.readings("cosine_excess").values[0]).max() < 0.1
    assert (gauge.readings("retention").values[0] > 0.95).all()
    assert gauge.readings_so_far().events("places") == []


@pytest.mark.slow
def test_gpt2_is_watched_and_measured() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(n_layer=3, n_embd=32, n_head=4, vocab_size=64, n_positions=32)
    model = GPT2LMHeadModel(config)
    ids = torch.randint(0, 64, (2, 16))
    gauge = Gauge(model, every=1)
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    gauge.step(loss)
    gauge.close()
    assert gauge.wiring is not None
    assert len(gauge.wiring.joins) == 6
    for name in PLACE:
        assert np.isfinite(gauge.readings(name).values).all(), name
    model.eval()
    found = measure(model, read_wiring(model, input_ids=ids), lambda: model(input_ids=ids, labels=ids).loss)
    rms = [h.double().square().mean().sqrt().item() for h in model(ids, output_hidden_states=True).hidden_states]
    # the last hidden state of transformers is after the final norm: compare those between the blocks
    assert found["stream_rms"].values[0, 1:-1:2] == pytest.approx(rms[1:-1], rel=1e-4)
    assert found["retention_total"].values[0, 0] > 1
