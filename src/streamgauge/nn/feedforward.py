"""Feed-forward sublayers: f(x, **context) -> branch, each token by itself."""

from __future__ import annotations

from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from streamgauge.nn.site import Role
from streamgauge.vocabulary import BranchKind


class FeedForward(nn.Module):
    """W2 gelu(W1 x), gelu(u) = u Phi(u).  (B, T, dim) -> (B, T, dim)."""

    kind: ClassVar[BranchKind] = "ffn"

    def __init__(self, dim: int, hidden: int, *, bias: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout
        self.up = nn.Linear(dim, hidden, bias=bias)
        self.down = nn.Linear(hidden, dim, bias=bias)

    def matrices(self) -> dict[Role, Tensor]:
        return {"up": self.up.weight, "down": self.down.weight}

    def forward(self, x: Tensor, **context: Any) -> Tensor:
        y: Tensor = self.down(F.gelu(self.up(x)))
        return F.dropout(y, self.dropout) if self.dropout and self.training else y


class SwiGLU(nn.Module):
    """W2 (silu(G x) * W1 x).  (B, T, dim) -> (B, T, dim).

    G and W1 are one fused matrix, gate rows first. Source: Shazeer 2020, arXiv 2002.05202.
    """

    kind: ClassVar[BranchKind] = "ffn"

    def __init__(self, dim: int, hidden: int, *, bias: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout
        self.up = nn.Linear(dim, 2 * hidden, bias=bias)
        self.down = nn.Linear(hidden, dim, bias=bias)

    def matrices(self) -> dict[Role, Tensor]:
        gate, up = self.up.weight.chunk(2)
        return {"gate": gate, "up": up, "down": self.down.weight}

    def forward(self, x: Tensor, **context: Any) -> Tensor:
        gate, up = self.up(x).chunk(2, dim=-1)
        y: Tensor = self.down(F.silu(gate) * up)
        return F.dropout(y, self.dropout) if self.dropout and self.training else y
