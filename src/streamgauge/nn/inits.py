"""Init rules: the standard deviation of every weight matrix, by its role, its fans and its place."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from streamgauge.nn.site import EMBEDDINGS, WRITERS, Matrix
from streamgauge.registry import Registry


@dataclass(frozen=True)
class Init:
    """An init rule: std(matrix) in absolute units; the scheme's gain multiplies it, biases start at 0.

    uniform           matrices are drawn from U(-sqrt(3) std, sqrt(3) std); embeddings are always normal
    scale_embeddings  token embeddings are multiplied by sqrt(width) in the forward pass
    """

    name: str
    std: Callable[[Matrix], float]
    summary: str
    paper: str
    uniform: bool = False
    scale_embeddings: bool = False

    def fill(self, weight: Tensor, matrix: Matrix, gain: float = 1.0) -> None:
        """Draw `weight` in place."""
        std = self.std(matrix) * gain
        with torch.no_grad():
            if self.uniform and matrix.role not in EMBEDDINGS:
                weight.uniform_(-math.sqrt(3) * std, math.sqrt(3) * std)
            else:
                weight.normal_(0.0, std)


def _xavier_std(matrix: Matrix, qkv_gain: float) -> float:
    if matrix.role in EMBEDDINGS:
        return 1.0 / math.sqrt(matrix.site.dim)
    gain = qkv_gain if matrix.role in ("query", "key", "value") else 1.0
    return gain * math.sqrt(2.0 / (matrix.fan_in + matrix.fan_out))


def xavier(qkv_gain: float = 1.0) -> Init:
    """std = sqrt(2 / (fan_in + fan_out)), uniform; embeddings N(0, 1/d), tokens times sqrt(d) in the forward pass.

    q, k and v are three matrices with fans (d, d), as in tensor2tensor. fairseq and torch.nn.MultiheadAttention
    draw them as one (d, 3d) matrix, which is qkv_gain = 1/sqrt(2).
    Source: Glorot & Bengio 2010; Vaswani et al. 2017, arXiv 1706.03762, code.
    """
    return Init(
        "xavier",
        partial(_xavier_std, qkv_gain=qkv_gain),
        "uniform, std sqrt(2/(fan_in + fan_out)); embeddings N(0, 1/d), token embeddings x sqrt(d)",
        "Glorot & Bengio 2010; Vaswani et al. 2017",
        uniform=True,
        scale_embeddings=True,
    )


def _gpt2_std(matrix: Matrix, sigma: float) -> float:
    writes = matrix.role in WRITERS and matrix.residual
    return sigma / math.sqrt(matrix.site.total) if writes else sigma


def gpt2(sigma: float = 0.02) -> Init:
    """std = 0.02; 0.02 / sqrt(2L) for the two projections of a block that write to the residual stream.

    2L is the number of sublayers of the stack. Embeddings 0.02 as well. Without a residual stream (scheme none) no
    projection is scaled.
    Source: Radford et al. 2019 (GPT-2), section 2.3.
    """
    return Init(
        "gpt2",
        partial(_gpt2_std, sigma=sigma),
        f"normal, std {sigma}; projections that write to the stream {sigma}/sqrt(2L)",
        "Radford et al. 2019 (GPT-2)",
    )


INITS: Registry[Init] = Registry("init rule", {"xavier": xavier(), "gpt2": gpt2()})
