from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import streamgauge as sg


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2, self.drop = nn.LayerNorm(width), nn.LayerNorm(width), nn.Dropout(0.1)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        x = x + self.drop(self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True)))
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tok, self.blocks = nn.Embedding(11, 16), nn.ModuleList(Block(16) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 11)
        nn.init.normal_(self.head.weight, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tok(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loss_of(model: nn.Module) -> Callable[[Tensor], Tensor]:
    return lambda x: F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())


def batches(count: int | None = None) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(1)
    for _ in itertools.count() if count is None else range(count):
        start = torch.randint(11, (4, 1), generator=generator)
        yield (start + 3 * torch.arange(9)) % 11


def adamw(model: nn.Module, lr: float = 1e-2) -> torch.optim.AdamW:
    return torch.optim.AdamW(model.parameters(), lr=lr)


def curve(result: object, name: str = "loss") -> np.ndarray:
    return result.readings[name].values[:, 0]


@pytest.mark.parametrize(("accumulate", "clip"), [(1, None), (3, None), (2, 0.05)])
def test_the_steps_are_those_of_the_run_bit_for_bit(accumulate: int, clip: float | None) -> None:
    model = Model()
    optimizer = adamw(model)
    torch.manual_seed(5)
    result = sg.check(model, loss_of(model), batches(), optimizer, accumulate=accumulate, clip=clip, budget=30)
    torch.manual_seed(5)
    losses, norms, source = [], [], batches()
    for _ in range(len(curve(result))):
        optimizer.zero_grad()
        total = torch.zeros(())
        for _ in range(accumulate):
            value = loss_of(model)(next(source))
            (value / accumulate).backward()
            total = total + value.detach()
        losses.append(float(total / accumulate))
        norms.append(float(torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])))
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
    assert curve(result).tolist() == losses
    assert curve(result, "grad_norm") == pytest.approx(norms, rel=1e-5)
    assert result.facts["handling"].accumulate == accumulate


@pytest.mark.parametrize("budget", [2, 9, 10, 33, 60])
@pytest.mark.parametrize("accumulate", [1, 4])
def test_the_budget_is_kept_and_told(budget: int, accumulate: int) -> None:
    model = Model()
    loss, calls = loss_of(model), [0]

    def counting(batch: Tensor) -> Tensor:
        seen.append(1)
        calls[0] += 1
        return loss(batch)

    seen = Unheld()
    result = sg.check(model, counting, list(batches(3)), adamw(model), budget=budget, accumulate=accumulate)
    assert result.spent == seen.count <= budget
    assert calls == [0]


class Unheld:
    """Counts where no state is put back."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def append(self, one: int) -> None:
        self.count += one


def test_a_list_begins_again_and_an_iterator_ends() -> None:
    model = Model()
    again = sg.check(model, loss_of(model), list(batches(3)), adamw(model), budget=30)
    assert len(curve(again)) > 15
    ended = sg.check(model, loss_of(model), batches(5), adamw(model), budget=30)
    assert len(curve(ended)) == 5
    assert any("ended after 5 steps" in note for note in ended.notes)
    assert any("5 of its elements are used up" in note for note in ended.notes)
    assert not any("used up" in note for note in again.notes)


def test_a_loss_that_is_no_number_ends_it_and_is_traced() -> None:
    model = Model()

    def loss(batch: tuple[int, Tensor]) -> Tensor:
        number, x = batch
        value = loss_of(model)(x)
        return value / (0.0 if number == 6 else 1.0) - value * (torch.inf if number == 6 else 0.0)

    before = copy.deepcopy(model.state_dict())
    result = sg.check(model, loss, enumerate(batches()), adamw(model))
    assert len(curve(result)) == 7
    assert np.isnan(curve(result)[6])
    assert result.facts["origin"].step == 6
    assert result.verdict == "will not train"
    assert "step 6, batch 6" in result.answer.reason
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert result.probability is None


def test_a_loss_that_rises_for_good_ends_it() -> None:
    model = Model()
    result = sg.check(model, loss_of(model), batches(), torch.optim.SGD(model.parameters(), lr=300.0), budget=60)
    assert result.verdict in ("will not train", "at risk")
    assert len(curve(result)) < 50


@pytest.mark.parametrize("at", [0, 1, 7])
def test_a_fault_at_any_step_is_the_users_to_see_and_all_is_put_back(at: int) -> None:
    model, calls = Model(), Unheld()
    optimizer = adamw(model)
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()

    def loss(batch: Tensor) -> Tensor:
        calls.append(1)
        if calls.count == at + 1:
            raise ZeroDivisionError("mine")
        return loss_of(model)(batch)

    with pytest.raises(ZeroDivisionError, match="mine"):
        sg.check(model, loss, batches(), optimizer)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert not optimizer.state
    assert all(p.grad is None for p in model.parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_hooks_of_the_optimizer_fire_and_what_they_keep_is_put_back() -> None:
    model, fired, kept = Model(), Unheld(), [0]
    optimizer = adamw(model)

    def after(*_: object) -> None:
        fired.append(1)
        kept[0] += 1

    optimizer.register_step_post_hook(after)
    result = sg.check(model, loss_of(model), batches(), optimizer, budget=20)
    assert fired.count == result.rehearsal.taken > 5
    assert kept == [0]


def test_time_is_a_cap() -> None:
    model = Model()
    result = sg.check(model, loss_of(model), batches(), adamw(model), seconds=1e-6)
    assert result.rehearsal.taken == 1
    assert any("time was over" in note for note in result.notes)


def test_half_precision_is_run_and_seen() -> None:
    model = Model()
    given = sg.check(model, loss_of(model), batches(), adamw(model), precision="bf16", budget=14)
    assert given.facts["handling"].autocast == "bfloat16"

    def inside(batch: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return loss_of(model)(batch)

    found = sg.check(model, inside, batches(), adamw(model), budget=14)
    assert found.facts["handling"].autocast == "bfloat16"
    assert curve(found).tolist() == curve(given).tolist()
    scaled = sg.check(model, loss_of(model), batches(), adamw(model), precision="fp16", budget=14)
    assert scaled.facts["handling"].loss_scale is not None
    assert np.isfinite(curve(scaled)).all()


def test_what_the_targets_are_is_seen() -> None:
    model = Model()
    result = sg.check(model, loss_of(model), batches(), adamw(model))
    assert (result.facts["vocab"], result.facts["causal_lm"]) == (11, True)
    assert result.facts["unigram_entropy"] == pytest.approx(np.log(11), abs=0.05)
    futures = [p for p in result.facts["probes"] if p.name == "future"]
    assert [p.change for p in futures] == [0.0]
    assert result.facts["phase"] == "rehearsal"
    assert curve(result)[-8:].mean() < curve(result)[0] - 0.3
    assert result.verdict == "not assessed"
    assert "fell from" in result.answer.reason


def test_targets_that_are_not_shifted_are_told() -> None:
    model = Model()

    def loss(x: Tensor) -> Tensor:
        return F.cross_entropy(model(x).flatten(0, 1), x.flatten())

    facts = sg.check(model, loss, batches(), adamw(model), budget=12).facts
    assert (facts["causal_lm"], facts["copied_targets"]) == (False, 1.0)
    assert [p.change for p in facts["probes"] if p.name == "future"] == [0.0]


def test_the_default_cap_leaves_steps_enough_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamgauge.preflight.budget.SECONDS", 1e-6)
    model = Model()
    assert sg.check(model, loss_of(model), batches(), adamw(model)).rehearsal.taken == 16
