"""Optimizers, schedulers, clipping, targets and patches, each by itself."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import lr_scheduler

from streamgauge.preflight.script.clipping import Clipping
from streamgauge.preflight.script.optimizers import Optimizers, Schedulers, Track
from streamgauge.preflight.script.patches import Patches
from streamgauge.preflight.script.targets import SeenTargets


@pytest.fixture
def patches() -> Iterator[Patches]:
    made = Patches()
    yield made
    made.undo()


@pytest.fixture
def seen(patches: Patches) -> Iterator[SimpleNamespace]:
    told = SimpleNamespace(ready=[], done=[], now=0)

    def ready(track: Track, loss: Tensor | None) -> None:
        told.ready.append((track.ref(), loss))

    told.optimizers = Optimizers(patches, ready, lambda track: told.done.append(track.ref()), lambda: told.now)
    yield told
    told.optimizers.remove()


def parameter() -> nn.Parameter:
    p = nn.Parameter(torch.ones(2))
    p.grad = torch.ones(2)
    return p


def test_a_step_is_ready_and_then_done(seen: SimpleNamespace) -> None:
    optimizer = torch.optim.SGD([parameter()], lr=0.1)
    optimizer.step()
    assert seen.ready == [(optimizer, None)]
    assert seen.done == [optimizer]
    (track,) = seen.optimizers.tracks
    assert (track.steps, track.rates, track.sizes()) == (1, [0.1], {id(track.parameters[0]): 2})


@pytest.mark.parametrize("by_name", [True, False])
def test_a_closure_is_waited_for_once(seen: SimpleNamespace, by_name: bool) -> None:
    p = parameter()
    optimizer = torch.optim.LBFGS([p], max_iter=4)
    calls: list[float] = []

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        calls.append(float(loss.detach()))
        return loss

    if by_name:
        optimizer.step(closure=closure)
    else:
        optimizer.step(closure)
    assert len(calls) > 1
    assert [float(loss.detach()) for _, loss in seen.ready] == [calls[0]]
    assert len(seen.done) == 1


def test_of_nested_optimizers_the_outer_one_counts(seen: SimpleNamespace) -> None:
    class Lookahead(torch.optim.Optimizer):
        def __init__(self, inner: torch.optim.Optimizer) -> None:
            super().__init__(inner.param_groups, {})
            self.inner = inner

        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            self.inner.step()

    outer = Lookahead(torch.optim.SGD([parameter()], lr=0.1))
    outer.step()
    assert [optimizer for optimizer, _ in seen.ready] == [outer]
    assert seen.done == [outer]


def test_gradients_begin_anew_at_zero_grad(seen: SimpleNamespace) -> None:
    model = nn.Linear(2, 2)
    mine, other = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.SGD([parameter()], lr=0.1)
    seen.now = 3
    model.zero_grad()
    assert [seen.optimizers.track(o).since for o in (mine, other)] == [3, 0]
    seen.now = 5
    other.zero_grad()
    assert [seen.optimizers.track(o).since for o in (mine, other)] == [3, 5]


def test_a_step_that_the_scaler_skips_is_counted(seen: SimpleNamespace) -> None:
    p = parameter()
    optimizer, scaler = torch.optim.SGD([p], lr=0.1), torch.amp.GradScaler("cpu")
    scaler.scale((p * math.inf).sum()).backward()
    scaler.step(optimizer)
    (track,) = seen.optimizers.tracks
    assert (track.steps, track.skipped, len(seen.done)) == (0, 1, 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda o: lr_scheduler.LambdaLR(o, lambda t: 1.0),
        lambda o: lr_scheduler.SequentialLR(
            o, [lr_scheduler.ConstantLR(o), lr_scheduler.CosineAnnealingLR(o, 10)], milestones=[5]
        ),
        lambda o: lr_scheduler.ChainedScheduler([lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.9)]),
        lambda o: lr_scheduler.OneCycleLR(o, 1.0, total_steps=10),
    ],
    ids=["lambda", "sequential", "chained", "one cycle"],
)
def test_steps_of_a_scheduler(patches: Patches, make: Any) -> None:
    schedulers = Schedulers(patches)
    optimizer = torch.optim.SGD([parameter()], lr=0.1)
    assert schedulers.of(optimizer) is None
    scheduler = make(optimizer)
    assert schedulers.of(optimizer) == (scheduler, 0)
    for _ in range(3):
        optimizer.step()
        scheduler.step()
    assert schedulers.of(optimizer) == (scheduler, 3)
    assert schedulers.of(torch.optim.SGD([parameter()], lr=0.1)) is None


def test_the_norm_of_what_was_clipped(patches: Patches) -> None:
    told: list[int] = []
    clipping = Clipping(patches, lambda: told.append(1))
    first, second, third = parameter(), parameter(), parameter()
    nn.utils.clip_grad_norm_([first], 0.5)
    assert clipping.norm_over([first, second]) is None, "a part is not the whole"
    nn.utils.clip_grad_norm_(iter([second]), 0.5)
    norm = clipping.norm_over([first, second])
    assert norm is not None
    assert float(norm) == pytest.approx(2.0)
    assert clipping.norm_over([first, second, third]) is None
    clipping.close()
    assert clipping.norm_over([first, second]) is None
    total = nn.utils.get_total_norm([third.grad])  # type: ignore[list-item]
    nn.utils.clip_grads_with_norm_([third], 0.25, total)
    norm = clipping.norm_over([third])
    assert norm is not None
    assert float(norm) == pytest.approx(math.sqrt(2))
    assert (clipping.limit, clipping.by_value, len(told)) == (0.25, False, 3)
    nn.utils.clip_grad_value_([third], 0.1)
    assert clipping.by_value


def test_targets_and_the_loss_once_more(patches: Patches) -> None:
    targets = SeenTargets(patches)
    logits, target = torch.zeros(40, 2, requires_grad=True), torch.tensor([0, 0, 0, 1] * 10)
    loss = nn.CrossEntropyLoss(ignore_index=1)(logits, target)
    assert targets.vocab == 2
    assert targets.last is not None
    assert torch.equal(targets.last, loss.detach())
    assert targets.again is not None
    other = torch.tensor([[1.0, 0.0]]).repeat(40, 1)
    assert float(targets.again(other.reshape(2, 20, 2))) == pytest.approx(math.log(1 + math.exp(-1)))
    with torch.no_grad():
        F.cross_entropy(torch.zeros(3, 7), torch.zeros(3, dtype=torch.long))
    assert targets.vocab == 2, "an evaluation tells nothing"


def test_patches_leave_a_forked_child_alone(patches: Patches, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = SimpleNamespace(work=lambda: "plain")
    patches.wrap(owner, "work", lambda original: f"{original()} and told")
    patches.wrap(owner, "missing", lambda original: None)
    assert owner.work() == "plain and told"
    parent = os.getpid()
    monkeypatch.setattr("os.getpid", lambda: parent + 1)
    assert owner.work() == "plain"
    monkeypatch.undo()
    patches.undo()
    assert owner.work() == "plain"
    assert not hasattr(owner, "missing")


def test_a_static_method_stays_one(patches: Patches) -> None:
    class Owner:
        @staticmethod
        def work(x: int) -> int:
            return x + 1

    patches.wrap(Owner, "work", lambda original, x: 10 * original(x))
    assert (Owner.work(1), Owner().work(1)) == (20, 20)
