"""Small models trained for real, and the evidence that a check would gather of them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from streamgauge.gauge import Gauge, watch
from streamgauge.nn import Decoder
from streamgauge.preflight import gather
from streamgauge.rules import RULES, Evidence
from streamgauge.vocabulary import Finding, NotAssessed, Schedule

VOCAB, CONTEXT = 32, 16


def decoder(scheme: str = "pre", depth: int = 2, width: int = 32, **options: object) -> Decoder:
    torch.manual_seed(0)
    return Decoder(vocab=VOCAB, depth=depth, width=width, heads=2, scheme=scheme, context=CONTEXT, **options)


def batch(step: int, size: int = 16) -> Tensor:
    """Sequences whose next token is a fixed permutation of the current one, with 10 % noise [size, CONTEXT + 1]."""
    generator = torch.Generator().manual_seed(step)
    follows = torch.randperm(VOCAB, generator=torch.Generator().manual_seed(99))
    ids = torch.randint(VOCAB, (size, CONTEXT + 1), generator=generator)
    keep = torch.rand(size, CONTEXT + 1, generator=generator) < 0.9
    for t in range(CONTEXT):
        ids[:, t + 1] = torch.where(keep[:, t], follows[ids[:, t]], ids[:, t + 1])
    return ids


def loss_of(model: nn.Module, step: int) -> Tensor:
    ids = batch(step)
    return cross_entropy(model(ids[:, :-1]).float().flatten(0, 1), ids[:, 1:].flatten())


def trained(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    steps: int,
    *,
    before_step: Callable[[int, Gauge], object] = lambda step, gauge: None,
    after_step: Callable[[int], object] = lambda step: None,
    every: int = 5,
    **facts: object,
) -> Evidence:
    """The evidence of a short run: readings, parameters with the first gradients, the optimizer's setup."""
    with watch(model, optimizer, every=every) as gauge:
        for step in range(steps):
            loss = loss_of(model, step)
            optimizer.zero_grad()
            loss.backward()
            if not step:
                told = {"parameters": gather.parameters(model), "setup": gather.setup(optimizer, model)}
            gauge.step(loss)
            before_step(step, gauge)
            optimizer.step()
            after_step(step)
        given = {"phase": "rehearsal", "schedule": Schedule(), "vocab": VOCAB, **told, **facts}
        return Evidence.of_run(gauge.readings_so_far(), **given)


def found(name: str, evidence: Evidence) -> Finding | None:
    """The finding of one rule, None where it passes; a rule that cannot judge fails the test."""
    answer = RULES[name](evidence)
    assert not isinstance(answer, NotAssessed), answer.reason
    return next(iter(answer), None)
