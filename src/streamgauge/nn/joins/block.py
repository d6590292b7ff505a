"""Joins at the grain of a block: what one sublayer adds depends on more of the block than the stream before it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from torch import Tensor, nn

from streamgauge.nn.joins.base import Joining, Sublayer, declared
from streamgauge.nn.norms import NormMaker
from streamgauge.nn.site import Site
from streamgauge.vocabulary import BranchKind, Join


class B2T(Joining):
    """h <- N(h + f(h)) from h = x;  the last sublayer also adds the block's input x"""

    placement = "post"

    def __init__(self, site: Site, norm: NormMaker) -> None:
        super().__init__()
        self.norms = nn.ModuleList(norm(site.at(slot)) for slot in range(site.sublayers))

    def declare(self, kinds: Sequence[BranchKind]) -> list[Join]:
        joins = [declared(self.placement, norm, kind) for norm, kind in zip(self.norms, kinds, strict=True)]
        return [*joins, replace(joins[-1], kind="other")]  # the long skip is one more addition

    def forward(self, x: Tensor, fs: Iterable[Sublayer]) -> Tensor:
        *inner, (last_norm, last) = zip(self.norms, fs, strict=True)
        h = x
        for norm, f in inner:
            h = norm(h + f(h))
        return last_norm(h + last(h) + x)  # type: ignore[no-any-return]
