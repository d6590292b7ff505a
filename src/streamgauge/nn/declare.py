"""The wiring that a stack of ours declares, join by join."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from streamgauge.nn.joins import Each, Joining
from streamgauge.nn.schemes import Scheme
from streamgauge.nn.stack import Stack
from streamgauge.vocabulary import Join, Wiring


def declare(stack: Stack, scheme: Scheme, prefix: str) -> Wiring:
    """Joins (or, without a residual, unjoined sublayers) in execution order, and whether a final norm follows."""
    found: list[Join] = []
    for site, name, block, f in stack.places():
        path = f"{prefix}.blocks.{site.block}"
        where, join = _declared(block.join, f"{path}.join")[site.slot]
        here = where if scheme.residual else f"{path}.sublayers.{name}"
        found.append(replace(join, index=len(found), path=here, kind=f.kind))
    final = not isinstance(stack.exit, nn.Identity)
    if scheme.residual:
        return Wiring(joins=tuple(found), final_norm=final)
    return Wiring(unjoined=tuple(found), final_norm=final)


def _declared(join: nn.Module, path: str) -> list[tuple[str, Join]]:
    """What a block's join says of each sublayer, with the path of the module that adds."""
    if isinstance(join, Each):
        return [pair for slot, one in enumerate(join) for pair in _declared(one, f"{path}.{slot}")]
    assert isinstance(join, Joining)
    return [(path, entry) for entry in join.declare()]
