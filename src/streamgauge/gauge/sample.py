"""What is kept of one tensor that a hook has seen: its mean square, and a few of its tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

SEQUENCES = 8
TOKENS = 64


def wide(device: torch.device) -> torch.dtype:
    """The dtype that statistics are accumulated in: float64, or float32 where the device has no float64 (mps)."""
    return torch.float32 if device.type == "mps" else torch.float64


def mean_square(x: Tensor) -> Tensor:
    """mean(x^2) over all elements, () in float64.

    Accumulated in float64 because a float32 square is zero below 1e-23 and infinite above 1e19: gradients of a deep
    stack reach the first, a half-precision stream that diverges the second.
    """
    norm: Tensor = torch.linalg.vector_norm(x, dtype=wide(x.device))
    return norm.square() / max(x.numel(), 1)


def pick(x: Tensor, sequences: int = SEQUENCES, tokens: int = TOKENS) -> Tensor:
    """Evenly spaced tokens of evenly spaced sequences, a float32 copy [sequences, tokens, width].

    x is [batch, ..., width]: all axes between the first and the last count as tokens. A matrix is one sequence.
    The choice is fixed, so that it draws no random number.
    """
    rows = x.reshape(1, -1, x.shape[-1]) if x.dim() < 3 else x.flatten(1, -2)
    every_row, every_token = -(-rows.shape[0] // sequences), -(-rows.shape[1] // tokens)
    return rows[::every_row, ::every_token].to(torch.float32, copy=True)


@dataclass(frozen=True, eq=False)
class Sample:
    """The statistics of one tensor at the moment when it was seen; later in-place changes do not reach them.

    mean_square  () float64, over all elements
    tokens       [sequences, tokens, width] float32, a subsample; None for gradients
    """

    mean_square: Tensor
    tokens: Tensor | None = None

    @property
    def rms(self) -> Tensor:
        """sqrt(mean(x^2)), ()."""
        return self.mean_square.sqrt()

    @cached_property
    def directions(self) -> Tensor:
        """The tokens as unit vectors [sequences, tokens, width]; a zero token stays zero."""
        if self.tokens is None:
            raise ValueError("this sample was taken without tokens")
        tiny = torch.finfo(torch.float32).tiny
        scaled = self.tokens / self.tokens.abs().amax(-1, keepdim=True).clamp_min(tiny)
        norms: Tensor = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
        return scaled / norms.clamp_min(tiny)

    @property
    def bare(self) -> Sample:
        """The same without its tokens."""
        return replace(self, tokens=None)


@torch.no_grad()
def sample(x: Tensor, *, tokens: bool = True) -> Sample:
    """Measure x [batch, tokens, width] of any floating dtype, now."""
    x = x.detach()
    return Sample(mean_square(x), pick(x) if tokens else None)
