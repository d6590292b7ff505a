"""Attention, and rotary positions.

A sublayer is f(x, **context) -> branch, (B, T, D) -> (B, T, D): it takes from the context what it needs and ignores
the rest. `kind` says what it is, `matrices` names its weights by role.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from streamgauge.nn.site import Role
from streamgauge.vocabulary import BranchKind


class Attention(nn.Module):
    """softmax(Q K^T / sqrt(d_k) + causal mask) V, then the output projection; heads of d_k = dim / heads.

    x (B, T, dim) -> (B, T, dim). rope: (cos, sin), each (T, d_k), turns q and k by their position.
    Source: Vaswani et al. 2017, arXiv 1706.03762, section 3.2.
    """

    kind: ClassVar[BranchKind] = "attention"

    def __init__(self, dim: int, heads: int, *, causal: bool = True, bias: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.size, self.causal, self.dropout = heads, dim // heads, causal, dropout
        self.qkv = nn.Linear(dim, 3 * dim, bias=bias)
        self.out = nn.Linear(dim, dim, bias=bias)

    def matrices(self) -> dict[Role, Tensor]:
        q, k, v = self.qkv.weight.chunk(3)
        return {"query": q, "key": k, "value": v, "out": self.out.weight}

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor] | None = None, **context: Any) -> Tensor:
        B, T, D = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.heads, self.size).permute(2, 0, 3, 1, 4).unbind(0)
        if rope is not None:
            q, k = turn(q, *rope), turn(k, *rope)
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=self.causal)
        y = self.out(y.transpose(1, 2).reshape(B, T, D))
        return F.dropout(y, dropout) if dropout else y


def rope_table(length: int, size: int, base: float = 10_000.0) -> Tensor:
    """cos and sin of t / base^(2i/size), stacked: (2, length, size), halves repeated. Su et al. 2021, 2104.09864."""
    rate = base ** (-torch.arange(0, size, 2, dtype=torch.float32) / size)
    angle = torch.outer(torch.arange(length, dtype=torch.float32), rate).repeat(1, 2)
    return torch.stack((angle.cos(), angle.sin()))


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the pairs (x_i, x_{i + size/2}) by their position's angle.  x (B, H, T, size), cos and sin (T, size)."""
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin
