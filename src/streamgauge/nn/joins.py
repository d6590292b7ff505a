"""Joins: how a sublayer f meets the stream x. The lines of `forward` are the equation of the paper.

`forward(stream, f) -> stream` at the grain of one sublayer (lifted to the block by `Each`), or
`forward(stream, fs) -> stream` at the grain of a block. A join returns a new stream and changes nothing in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from streamgauge.nn.norms import NormMaker
from streamgauge.nn.site import Site
from streamgauge.vocabulary import Join, Placement

Sublayer = Callable[[Tensor], Tensor]
JoinMaker = Callable[[Site, NormMaker], nn.Module]


class Joining(nn.Module):
    """What a join declares about itself, so that its wiring can be checked against the one read from the graph."""

    placement: ClassVar[Placement]
    adds: ClassVar[bool] = True  # False: the sublayer's output replaces the stream

    def declare(self) -> list[Join]:
        """One entry per sublayer, in order, without index, path and kind."""
        return [declared(self.placement, self.get_submodule("norm"))]


def declared(placement: Placement, norm: nn.Module) -> Join:
    """`placement` with the kind and eps of `norm`, or "none" where there is no norm to place."""
    kind = getattr(norm, "kind", None)
    if kind is None:
        return Join(0, "", "none")
    return Join(0, "", placement, norm=kind, eps=getattr(norm, "eps", None))


class Each(nn.ModuleList):
    """The same join once per sublayer of the block."""

    def forward(self, stream: Tensor, fs: Iterable[Sublayer]) -> Tensor:
        for join, f in zip(self, fs, strict=True):
            stream = join(stream, f)
        return stream


@dataclass(frozen=True)
class each:  # noqa: N801 (reads as the verb it is: each(PreNorm))
    """Lift the builder of a sublayer-grain join to the grain of the block."""

    join: JoinMaker

    def __call__(self, site: Site, norm: NormMaker) -> nn.Module:
        return Each(self.join(site.at(slot), norm) for slot in range(site.sublayers))


class NoResidual(Joining):
    """x <- f(N(x))"""

    placement = "none"
    adds = False

    def __init__(self, site: Site, norm: NormMaker) -> None:
        super().__init__()
        self.norm = norm(site)

    def forward(self, x: Tensor, f: Sublayer) -> Tensor:
        return f(self.norm(x))


class PreNorm(Joining):
    """x <- x + f(N(x))"""

    placement = "pre"

    def __init__(self, site: Site, norm: NormMaker) -> None:
        super().__init__()
        self.norm = norm(site)

    def forward(self, x: Tensor, f: Sublayer) -> Tensor:
        return x + f(self.norm(x))


class PostNorm(Joining):
    """x <- N(x + f(x))"""

    placement = "post"

    def __init__(self, site: Site, norm: NormMaker) -> None:
        super().__init__()
        self.norm = norm(site)

    def forward(self, x: Tensor, f: Sublayer) -> Tensor:
        y: Tensor = self.norm(x + f(x))
        return y


class Sandwich(Joining):
    """x <- x + N_out(f(N(x)))"""

    placement = "sandwich"

    def __init__(self, site: Site, norm: NormMaker) -> None:
        super().__init__()
        self.norm, self.norm_out = norm(site), norm(site)

    def forward(self, x: Tensor, f: Sublayer) -> Tensor:
        y: Tensor = x + self.norm_out(f(self.norm(x)))
        return y


class B2T(Joining):
    """h <- N(h + f(h)) from h = x;  the last sublayer also adds the block's input x"""

    placement = "post"

    def __init__(self, site: Site, norm: NormMaker) -> None:
        super().__init__()
        self.norms = nn.ModuleList(norm(site.at(slot)) for slot in range(site.sublayers))

    def declare(self) -> list[Join]:
        return [declared(self.placement, norm) for norm in self.norms]

    def forward(self, x: Tensor, fs: Iterable[Sublayer]) -> Tensor:
        *inner, (norm, last) = zip(self.norms, fs, strict=True)
        h = x
        for norm_h, f in inner:
            h = norm_h(h + f(h))
        y: Tensor = norm(x + h + last(h))
        return y
