"""Joins at the grain of one sublayer, on one stream."""

from __future__ import annotations

from torch import Tensor

from streamgauge.nn.joins.base import OneNorm, Sublayer
from streamgauge.nn.norms import NormMaker
from streamgauge.nn.site import Site


class NoResidual(OneNorm):
    """x <- f(N(x))"""

    placement = "none"

    def forward(self, x: Tensor, f: Sublayer) -> Tensor:
        return f(self.norm(x))


class PreNorm(OneNorm):
    """x <- x + f(N(x))"""

    placement = "pre"

    def forward(self, x: Tensor, f: Sublayer) -> Tensor:
        return x + f(self.norm(x))


class PostNorm(OneNorm):
    """x <- N(x + f(x))"""

    placement = "post"

    def forward(self, x: Tensor, f: Sublayer) -> Tensor:
        return self.norm(x + f(x))  # type: ignore[no-any-return]


class Sandwich(OneNorm):
    """x <- x + N_out(f(N(x)))"""

    placement = "sandwich"

    def __init__(self, site: Site, norm: NormMaker) -> None:
        super().__init__(site, norm)
        self.norm_out = norm(site)

    def forward(self, x: Tensor, f: Sublayer) -> Tensor:
        return x + self.norm_out(f(self.norm(x)))  # type: ignore[no-any-return]
