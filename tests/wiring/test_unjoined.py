"""Sublayers that replace the stream: no residual anywhere, or at some of them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from streamgauge.vocabulary import Wiring
from streamgauge.wiring import read_wiring

D = 16


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(D, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, x, x, need_weights=False)[0]


class Block(nn.Module):
    def __init__(self, attn: Callable[[Tensor, Tensor], Tensor], ffn: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.n1, self.n2, self.attn = nn.LayerNorm(D), nn.LayerNorm(D), Attention()
        self.ffn = nn.Sequential(nn.Linear(D, 2 * D), nn.GELU(), nn.Linear(2 * D, D), nn.Dropout(0.1))
        self.join = attn, ffn

    def forward(self, x: Tensor) -> Tensor:
        x = self.join[0](x, self.attn(self.n1(x)))
        return self.join[1](x, self.ffn(self.n2(x)))


def add(x: Tensor, y: Tensor) -> Tensor:
    return x + y


def replace(x: Tensor, y: Tensor) -> Tensor:
    return y


def read(*blocks: nn.Module) -> Wiring:
    head = nn.Sequential(nn.Linear(D, D), nn.GELU(), nn.Linear(D, D))
    return read_wiring(nn.Sequential(nn.Embedding(32, D), *blocks, nn.LayerNorm(D), head), torch.arange(12).view(2, 6))


def test_no_residual_at_all() -> None:
    w = read(*(Block(replace, replace) for _ in range(3)))
    assert w.joins == ()
    assert [j.kind for j in w.unjoined] == ["attention", "ffn"] * 3
    assert [j.index for j in w.unjoined] == list(range(6))
    assert {j.placement for j in w.unjoined} == {"none"}
    paths = [j.stream_tap.path for j in w.unjoined if j.stream_tap]
    assert paths == ["0", "1.attn.inner", "1.ffn.3", "2.attn.inner", "2.ffn.3", "3.attn.inner"]
    assert [j.out_tap for j in w.unjoined] == [j.branch_tap for j in w.unjoined]
    assert w.final_norm


def test_one_of_them_lacks_the_residual() -> None:
    w = read(Block(add, add), Block(add, replace), Block(add, add))
    assert w.placements == {"pre": 5}
    assert [(j.index, j.kind) for j in w.unjoined] == [(3, "ffn")]
    w = read(Block(add, add), Block(replace, add), Block(add, add))
    assert [(j.index, j.kind) for j in w.unjoined] == [(2, "attention")]


def test_heads_and_stems_are_not_unjoined() -> None:
    assert read(Block(add, add), Block(add, add)).unjoined == ()


def test_a_decoder_without_residual_that_reads_a_memory() -> None:
    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Embedding(32, D), nn.Embedding(32, D)
            self.encode, self.blocks = nn.Sequential(Block(add, add), Block(add, add)), nn.ModuleList()
            for _ in range(2):
                cross = nn.MultiheadAttention(D, 2, batch_first=True)
                self.blocks.append(nn.ModuleList([nn.LayerNorm(D), Attention(), nn.LayerNorm(D), cross]))

        def forward(self, ids: Tensor) -> Tensor:
            memory, x = self.encode(self.a(ids)), self.b(ids)
            for n1, attn, n2, cross in self.blocks:
                x = attn(n1(x))
                x = cross(n2(x), memory, memory, need_weights=False)[0]
            return x

    w = read_wiring(Decoder(), torch.arange(12).reshape(2, 6))
    assert w.placements == {"pre": 4}
    assert [j.kind for j in w.unjoined] == ["attention", "cross-attention"] * 2
