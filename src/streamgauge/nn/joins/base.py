"""What every join has in common.

forward(stream, f) -> stream     at the grain of one sublayer; `each` lifts it to the block
forward(stream, fs) -> stream    at the grain of a block

A join returns a new stream and changes nothing in place, so that a block can be computed twice (checkpointing). Its
parameters are its own and none of them is 0-d, so that a block can be sharded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from streamgauge.nn.norms import NormMaker, norm_kind
from streamgauge.nn.site import Site
from streamgauge.vocabulary import BranchKind, Join, Placement

Sublayer = Callable[[Tensor], Tensor]
JoinMaker = Callable[[Site, NormMaker], nn.Module]


class Joining(nn.Module):
    """A join, and what it declares about itself so that its wiring can be checked against the one read off a graph."""

    placement: ClassVar[Placement]

    def declare(self, kinds: Sequence[BranchKind]) -> list[Join]:
        """One entry per addition, in order, for sublayers of these kinds; without index and path."""
        raise NotImplementedError


class OneNorm(Joining):
    """A join of one sublayer with one norm."""

    def __init__(self, site: Site, norm: NormMaker) -> None:
        super().__init__()
        self.norm = norm(site)

    def declare(self, kinds: Sequence[BranchKind]) -> list[Join]:
        return [declared(self.placement, self.norm, kind) for kind in kinds]


def declared(placement: Placement, norm: nn.Module, kind: BranchKind) -> Join:
    """`placement` with the kind and eps of `norm`; "none" where no norm stands, "unrecognised" for a foreign one."""
    if isinstance(norm, nn.Identity) or placement == "none":
        return Join(0, "", "none", kind=kind)
    known = norm_kind(norm)
    eps = getattr(norm, "eps", None)
    return Join(0, "", placement if known else "unrecognised", norm=known, eps=eps, kind=kind)


class Each(nn.ModuleList):
    """The same join once per sublayer of the block."""

    def forward(self, stream: Tensor, fs: Iterable[Sublayer]) -> Tensor:
        for join, f in zip(self, fs, strict=True):
            stream = join(stream, f)
        return stream


@dataclass(frozen=True)
class each:  # noqa: N801 (a verb: each(PreNorm); a class, so that a scheme can be pickled)
    """Lift the builder of a sublayer-grain join to the grain of the block."""

    join: JoinMaker

    def __call__(self, site: Site, norm: NormMaker) -> nn.Module:
        return Each(self.join(site.at(slot), norm) for slot in range(site.sublayers))
