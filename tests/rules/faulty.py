"""A small causal language model whose blocks can be built with one fault, for the tests of rules on real models."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

VOCAB, LENGTH, WIDTH = 32, 16, 32


class Attention(nn.Module):
    """Causal attention that may read its queries from another tensor than its keys and values."""

    def __init__(self, init: str = "xavier", heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        q, k, v = (
            f(t).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for f, t in ((self.q, x), (self.k, memory), (self.v, memory))
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.o(y.transpose(1, 2).flatten(-2))
        return out


class Block(nn.Module):
    """x <- x + attn(ln(x)); x <- x + mlp(ln(x)), or what `fault` makes of it."""

    def __init__(self, fault: str = "", stray: bool = False) -> None:
        super().__init__()
        self.fault, self.stray = fault, stray
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn = Attention()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.register_buffer("gate", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        fault, attn, mlp, ln1, ln2 = self.fault, self.attn, self.mlp, self.ln1, self.ln2
        if fault == "ffn without skip":
            x = x + attn(h := ln1(x), h)
            return mlp(ln2(x))
        if fault == "raw keys":
            x = x + attn(ln1(x), x)
            return x + mlp(ln2(x))
        if fault == "output":
            x = x + ln1(attn(x, x))
            return x + ln2(mlp(x))
        if fault == "halved":
            x = (x + attn(h := ln1(x), h)) * math.sqrt(0.5)
            return (x + mlp(ln2(x))) * math.sqrt(0.5)
        if fault == "no norm":
            x = x + attn(x, x)
            return x + mlp(x)
        if fault == "no skip":
            return mlp(ln2(attn(h := ln1(x), h)))
        if fault == "gate":
            x = x + self.gate * attn(h := ln1(x), h)
            return x + self.gate * mlp(ln2(x))
        if fault == "detached":
            x = x + attn(h := ln1(x), h)
            return x + mlp(ln2(x)).detach()
        if fault == "one post" and self.stray:
            x = ln1(x + attn(x, x))
            return ln2(x + mlp(x))
        if fault == "ln2 unused":
            x = x + attn(h := ln1(x), h)
            return x + mlp(x)
        x = x + attn(h := ln1(x), h)
        return x + mlp(ln2(x))


class LM(nn.Module):
    """Embeddings, blocks, final norm, head."""

    def __init__(self, fault: str = "", depth: int = 6, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.fault = fault
        self.tok, self.pos = nn.Embedding(VOCAB, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block(fault, stray=i == depth // 2) for i in range(depth))
        self.ln_f, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB)
        for p in self.blocks.parameters():
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)
        if fault == "two zeros":
            for block in self.blocks:
                nn.init.zeros_(block.mlp[0].weight), nn.init.zeros_(block.mlp[0].bias)
        if fault in ("two zeros", "one zero"):
            for block in self.blocks:
                nn.init.zeros_(block.mlp[2].weight)
        if fault == "large":
            for p in self.blocks.parameters():
                if p.dim() > 1:
                    nn.init.normal_(p)
        if fault == "he":
            for p in self.blocks.parameters():
                if p.dim() > 1:
                    nn.init.normal_(p, std=math.sqrt(6 / p.shape[1]))
        if fault == "large head":
            nn.init.normal_(self.head.weight)
        if fault == "tied":
            self.head.weight = self.tok.weight
        if fault == "tiny":
            nn.init.normal_(self.tok.weight, std=1e-4)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(x if self.fault == "no final call" else self.ln_f(x))
        return logits


class Scalars(nn.Module):
    """A regressor of a scalar series whose every number is spread over all features: the first norm deletes it."""

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fault = fault
        self.into = nn.Linear(1, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.narrow, self.ln_f, self.head = nn.LayerNorm(1), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, series: Tensor) -> Tensor:
        x = self.narrow(series.unsqueeze(-1)) if self.fault == "narrow" else series.unsqueeze(-1)
        x = x.expand(-1, -1, WIDTH) if self.fault == "broadcast" else self.into(x)
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.head(self.ln_f(x)).squeeze(-1)
        return out
