"""The wiring that a stack of ours declares, join by join."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import nn

from streamgauge.nn.joins import Each, Joining
from streamgauge.nn.schemes import Scheme
from streamgauge.nn.stack import Block, Stack
from streamgauge.vocabulary import Join, Wiring


def declare(stack: Stack, scheme: Scheme, prefix: str) -> Wiring:
    """Joins (or, without a residual, unjoined sublayers) in execution order, and whether a final norm follows."""
    found = [entry for k, block in enumerate(stack.blocks) for entry in _declared(block, f"{prefix}.blocks.{k}")]
    numbered = tuple(replace(entry, index=index) for index, entry in enumerate(found))
    final = not isinstance(stack.exit, nn.Identity)
    if scheme.residual:
        return Wiring(joins=numbered, final_norm=final)
    return Wiring(unjoined=numbered, final_norm=final)


def _declared(block: nn.Module, path: str) -> list[Join]:
    assert isinstance(block, Block)
    kinds: list[Any] = [getattr(f, "kind", "other") for f in block.sublayers.values()]
    path = f"{path}.join"
    if isinstance(block.join, Joining):
        return [replace(entry, path=path) for entry in block.join.declare(kinds)]
    assert isinstance(block.join, Each)
    pairs = enumerate(zip(block.join, kinds, strict=True))
    return [
        replace(entry, path=f"{path}.{slot}")
        for slot, (join, kind) in pairs
        if isinstance(join, Joining)
        for entry in join.declare([kind])
    ]
