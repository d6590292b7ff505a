"""Where a part stands in the network: the one thing a scheme may depend on besides its own options."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from streamgauge.vocabulary import BranchKind

Role = Literal["query", "key", "value", "out", "up", "gate", "down", "token", "position", "head"]

READERS: tuple[Role, ...] = ("query", "key", "value", "up", "gate")
WRITERS: tuple[Role, ...] = ("out", "down")  # the projections whose output leaves the sublayer
EMBEDDINGS: tuple[Role, ...] = ("token", "position")
ROLES: tuple[Role, ...] = get_args(Role)


@dataclass(frozen=True)
class Site:
    """Sublayer `slot` of block `block`, counted from 0, in a stack of `blocks` blocks on a stream of size `dim`.

    `kinds` names the sublayers of one block in order. What stands before the first block has block 0, what stands
    after the last has block = blocks.
    """

    block: int
    blocks: int
    dim: int
    kinds: tuple[BranchKind, ...] = ("attention", "ffn")
    slot: int = 0

    @property
    def sublayers(self) -> int:
        """Sublayers per block."""
        return len(self.kinds)

    @property
    def index(self) -> int:
        """Position among all sublayers of the stack, from 0."""
        return self.block * self.sublayers + self.slot

    @property
    def total(self) -> int:
        """K, the number of sublayers of the stack: 2L, or 3L with cross-attention."""
        return self.blocks * self.sublayers

    @property
    def kind(self) -> BranchKind:
        return self.kinds[self.slot]

    def at(self, slot: int) -> Site:
        """The same block, another sublayer."""
        return replace(self, slot=slot)


@dataclass(frozen=True)
class Matrix:
    """One weight matrix as an init rule sees it: what it does, its fans, where it stands.

    `residual` is True where the scheme adds the sublayer's output to a stream, False where the output replaces it.
    """

    role: Role
    fan_in: int
    fan_out: int
    site: Site
    residual: bool = True
