from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from streamgauge.preflight.gather import Targets


def seen(logits: torch.Tensor, target: torch.Tensor, **more: object) -> Targets:
    targets = Targets()
    with targets:
        F.cross_entropy(logits, target, **more)
    return targets


def ids(batch: int = 8, tokens: int = 40, vocab: int = 7) -> torch.Tensor:
    return torch.randint(vocab, (batch, tokens), generator=torch.Generator().manual_seed(0))


def test_next_tokens_are_recognised_in_each_usual_shape() -> None:
    x = ids()
    cut = seen(torch.zeros(8 * 39, 7), x[:, 1:].flatten())
    assert cut.vocab == 7
    assert cut.shifted_from([x]) is x
    fed = x[:, :-1]
    assert seen(torch.zeros(8 * 39, 7), x[:, 1:].flatten()).shifted_from([fed]) is fed
    padded = F.pad(x[:, 1:], (0, 1), value=-100)
    assert seen(torch.zeros(8 * 40, 7), padded.flatten()).shifted_from([torch.ones(8, 40).long(), x]) is x
    assert seen(torch.zeros(8, 7, 39), x[:, 1:]).shifted_from([x]) is x
    assert seen(torch.zeros(8, 7), x[:, 0]).shifted_from([x]) is None
    assert seen(torch.zeros(8 * 40, 7), x.flatten()).shifted_from([x]) is None


def test_copied_targets() -> None:
    x = ids()
    assert seen(torch.zeros(8 * 40, 7), x.flatten()).copied_from([x]) == 1.0
    masked = torch.where(torch.rand(8, 40) < 0.3, x, -100)
    assert seen(torch.zeros(8 * 40, 7), masked.flatten()).copied_from([(x + 1) % 7]) == 0.0
    assert seen(torch.zeros(8, 7), x[:, 0]).copied_from([x]) is None


def test_entropy_of_the_targets() -> None:
    target = torch.tensor([0] * 300 + [1] * 100)
    want = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25)) + 1 / 800
    assert seen(torch.zeros(400, 50), target).unigram_entropy == pytest.approx(want, rel=1e-12)
    target[:100] = 9
    assert seen(torch.zeros(400, 50), target, ignore_index=9).unigram_entropy == pytest.approx(
        -(2 / 3 * math.log(2 / 3) + 1 / 3 * math.log(1 / 3)) + 1 / 600
    )
    assert seen(torch.zeros(30, 50), torch.arange(30)).unigram_entropy is None


def test_modules_are_seen_and_values_are_not_changed() -> None:
    x = torch.randn(5, 3)
    targets = Targets()
    plain = nn.CrossEntropyLoss()(x, torch.arange(5) % 3)
    with targets:
        watched = nn.CrossEntropyLoss()(x, torch.arange(5) % 3)
    assert torch.equal(plain, watched)
    assert targets.vocab == 3
    soft = Targets()
    with soft:
        F.cross_entropy(x, torch.full((5, 3), 1 / 3))
    assert soft.vocab is None
