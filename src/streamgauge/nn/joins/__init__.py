"""Joins: how a sublayer f meets the stream x. The lines of a join's `forward` are the equation of its paper."""

from __future__ import annotations

from streamgauge.nn.joins.base import Each, Joining, JoinMaker, Sublayer, declared, each
from streamgauge.nn.joins.block import B2T
from streamgauge.nn.joins.single import NoResidual, PostNorm, PreNorm, Sandwich

__all__ = [
    "B2T",
    "Each",
    "JoinMaker",
    "Joining",
    "NoResidual",
    "PostNorm",
    "PreNorm",
    "Sandwich",
    "Sublayer",
    "declared",
    "each",
]
