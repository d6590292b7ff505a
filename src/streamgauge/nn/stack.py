"""Block and Stack: the fold of a scheme's joins over sublayers. One block is the unit of sharding, checkpointing
and compilation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from streamgauge.nn.norms import NormMaker
from streamgauge.nn.schemes import Scheme
from streamgauge.nn.site import Site

Stream = Any  # a tensor (B, T, D), or a tuple of tensors where a scheme carries more than one


class Block(nn.Module):
    """stream <- join(stream, sublayers).  `context` (masks, position tables ...) goes to every sublayer."""

    def __init__(self, join: nn.Module, sublayers: dict[str, nn.Module]) -> None:
        super().__init__()
        self.join = join
        self.sublayers = nn.ModuleDict(sublayers)

    def forward(self, stream: Stream, **context: Any) -> Stream:
        fs: Any = self.sublayers.values()
        if context:
            fs = [partial(f, **context) for f in fs]
        return self.join(stream, fs)


class Stack(nn.Module):
    """features = exit(block_L(... block_1(enter(x)))).  x (B, T, D) -> (B, T, D).

    sublayers(site) builds the sublayers of one block, by name and in order. With `checkpoint` set, each block's
    activations are computed again in the backward pass instead of being kept.
    """

    def __init__(
        self, scheme: Scheme, first: Site, norm: NormMaker, sublayers: Callable[[Site], dict[str, nn.Module]]
    ) -> None:
        super().__init__()
        sites = [replace(first, block=k) for k in range(first.blocks + 1)]
        self.first, self.checkpoint = first, False
        self.enter = scheme.enter(first, norm)
        self.blocks = nn.ModuleList(Block(scheme.join(site, norm), sublayers(site)) for site in sites[:-1])
        self.exit = scheme.exit(sites[-1], norm)

    def places(self) -> Iterator[tuple[Site, str, Block, Any]]:
        """Site, name, block and module of every sublayer, in execution order."""
        for k, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            for slot, (name, f) in enumerate(block.sublayers.items()):
                yield replace(self.first, block=k, slot=slot), name, block, f

    def forward(self, x: Stream, **context: Any) -> Stream:
        stream = self.enter(x)
        for block in self.blocks:
            if self.checkpoint and self.training:
                stream = checkpoint(block, stream, use_reentrant=False, **context)
            else:
                stream = block(stream, **context)
        return self.exit(stream)
