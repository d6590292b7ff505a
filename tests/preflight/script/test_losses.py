from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from streamgauge.preflight.script.losses import Losses
from streamgauge.preflight.script.patches import Patches


@pytest.fixture
def losses() -> Iterator[Losses]:
    patches = Patches()
    yield Losses(patches, lambda loss: None, lambda: None)
    patches.undo()


def weight(value: float = 2.0) -> Tensor:
    return torch.tensor(value, requires_grad=True)


def step(losses: Losses, since: int = 0) -> float:
    value = losses.of_step(since)
    assert value is not None
    return float(value)


def test_each_way_of_calling_backward_counts_once(losses: Losses) -> None:
    weight(3.0).square().backward()
    torch.autograd.backward(weight(4.0).square())
    torch.autograd.backward([weight(5.0).square()])
    assert losses.count == 3
    assert [step(losses, n) for n in range(3)] == [pytest.approx(50 / 3), pytest.approx(20.5), 25.0]


def test_a_vector_has_no_loss(losses: Losses) -> None:
    w = weight()
    (w * torch.ones(3)).backward(torch.ones(3))
    assert (losses.count, losses.of_step(0)) == (1, None)


def test_the_value_is_that_at_the_call(losses: Losses) -> None:
    loss = weight(3.0).square()
    loss.backward()
    with torch.no_grad():
        loss.mul_(100)
    assert step(losses) == 9.0


@pytest.mark.parametrize("how", [lambda x: x / 3, lambda x: x * (1 / 3), lambda x: x / torch.tensor(3.0)])
def test_parts_are_added_up(losses: Losses, how: object) -> None:
    assert callable(how)
    for value in (1.0, 2.0, 3.0):
        how(weight(value).square()).backward()
    assert step(losses) == pytest.approx((1 + 4 + 9) / 3, rel=1e-6)


def test_whole_losses_are_averaged(losses: Losses) -> None:
    for value in (1.0, 2.0, 3.0):
        (weight(value).square() / 7).backward()  # a division that is part of the loss
    assert step(losses) == pytest.approx((1 + 4 + 9) / 21, rel=1e-6)


@pytest.mark.parametrize("over", [2, 1])
def test_a_sum_over_the_tokens_of_all_batches(losses: Losses, over: int) -> None:
    """Two batches of four targets: sum / 8 is a part of the mean over eight; sum / 4 is the mean of one batch."""
    logits, target = torch.zeros(4, 5, requires_grad=True), torch.arange(4)
    for _ in range(2):
        (F.cross_entropy(logits, target, reduction="sum") / (4 * over) / 1).backward()
    assert step(losses) == pytest.approx(torch.log(torch.tensor(5.0)).item(), rel=1e-6)


def test_a_pass_that_is_quiet_does_not_count(losses: Losses) -> None:
    losses.quiet = True
    weight().square().backward()
    assert losses.count == 0


def test_another_tensor_than_the_scaled_one(losses: Losses) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaled = scaler.scale(weight(3.0).square())
    weight(1.0).square().backward()
    assert step(losses) == 1.0
    assert float(scaled.detach()) == 72.0
