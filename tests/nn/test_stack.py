from __future__ import annotations

from typing import Any

import torch

from streamgauge import nn
from streamgauge.nn.norms import choose_norm

SEEN: list[Any] = []


class Probe(torch.nn.Module):
    kind = "other"

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.map = torch.nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor, **context: Any) -> torch.Tensor:
        SEEN.append((x, context))
        return self.map(x)


def build(scheme: str = "pre", blocks: int = 3) -> nn.Stack:
    SEEN.clear()
    return nn.Stack(
        nn.SCHEMES[scheme],
        nn.Site(0, blocks, 4, ("other", "other")),
        choose_norm("layernorm"),
        lambda site: {"a": Probe(4), "b": Probe(4)},
    )


def test_context_reaches_every_sublayer() -> None:
    stack = build()
    stack(torch.randn(1, 2, 4), mask="m")
    assert [context for _, context in SEEN] == [{"mask": "m"}] * 6


def test_sites_run_through_the_stack_in_order() -> None:
    sites = [site for site, _, _, _ in build().places()]
    assert [site.index for site in sites] == list(range(6))
    assert [name for _, name, _, _ in build().places()] == ["a", "b"] * 3


def test_checkpointing_computes_each_block_again_in_training_only() -> None:
    stack = build()
    stack.checkpoint = True
    stack(torch.randn(1, 2, 4, requires_grad=True)).sum().backward()
    assert len(SEEN) == 12
    SEEN.clear()
    stack.eval()(torch.randn(1, 2, 4, requires_grad=True)).sum().backward()
    assert len(SEEN) == 6


def test_the_stream_is_the_very_tensor_at_every_boundary() -> None:
    """What a hook on a join, a block or a sublayer sees is what the next one gets, not a copy."""
    stack = build("pre")
    joins: list[tuple[Any, Any]] = []
    for block in stack.blocks:
        for join in block.join:
            join.register_forward_hook(lambda module, args, out: joins.append((args[0], out)))
    blocks: list[tuple[Any, Any]] = []
    for block in stack.blocks:
        block.register_forward_hook(lambda module, args, out: blocks.append((args[0], out)))
    stack(torch.randn(1, 2, 4))
    assert all(joins[k][1] is joins[k + 1][0] for k in range(5))
    assert all(blocks[k][0] is joins[2 * k][0] and blocks[k][1] is joins[2 * k + 1][1] for k in range(3))
