from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import lr_scheduler as lrs

import streamgauge as sg
from streamgauge.preflight import pace as paces


class Model(nn.Module):
    """Two residual feed-forward sublayers: enough to be rehearsed."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tok, self.norm, self.head = nn.Embedding(11, 16), nn.LayerNorm(16), nn.Linear(16, 11)
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)) for _ in range(2)
        )

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tok(ids)
        for mlp in self.mlps:
            x = x + mlp(x)
        return self.head(self.norm(x))


def loss_of(model: nn.Module):
    return lambda x: F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())


def batches() -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [(torch.randint(11, (4, 1), generator=generator) + 3 * torch.arange(9)) % 11 for _ in range(60)]


def adamw(model: nn.Module, lr: float = 1e-2) -> torch.optim.AdamW:
    return torch.optim.AdamW(model.parameters(), lr=lr)


def curve(result, name: str = "loss") -> np.ndarray:
    return result.readings[name].values[:, 0]


def test_without_a_schedule_all_is_at_the_peak() -> None:
    model = Model()
    result = sg.check(model, loss_of(model), batches(), adamw(model), budget=20)
    assert set(curve(result, "lr")) == {1e-2}
    assert result.rehearsal.peak_from == 0
    other = sg.check(model, loss_of(model), batches(), None, lr=3e-3, budget=20)
    assert set(curve(other, "lr")) == {3e-3}
    assert any("no optimizer given" in note for note in other.notes)
    assert other.facts["setup"] is None


@pytest.mark.parametrize("how", ["warmup", "function", "scheduler", "found"])
def test_a_schedule_is_followed_then_its_peak(how: str) -> None:
    model = Model()
    optimizer = adamw(model)
    ramp = lambda t: min(1.0, (t + 1) / 100)  # noqa: E731
    given: dict[str, object] = {"warmup": 100} if how == "warmup" else {}
    scheduler = None
    if how in ("scheduler", "found"):
        scheduler = lrs.LambdaLR(optimizer, ramp)
    if how in ("scheduler", "function"):
        given["schedule"] = scheduler or ramp
    result = sg.check(model, loss_of(model), batches(), optimizer, **given)
    rates = curve(result, "lr")
    start = paces.START
    assert rates[:start] == pytest.approx([1e-2 * (t + 1) / 100 for t in range(start)])
    peak = result.rehearsal.peak_from
    assert start < peak < len(rates) - 10
    assert np.all(np.diff(rates[start - 1 : peak + 1]) > 0)
    assert rates[peak:] == pytest.approx(1e-2)
    assert result.facts["schedule"].warmup_steps in (99, 100)
    assert result.facts["schedule"].steps_per_tick is None
    if scheduler is not None:
        assert optimizer.param_groups[0]["lr"] == pytest.approx(1e-4)
        assert scheduler.last_epoch == 0
    else:
        assert optimizer.param_groups[0]["lr"] == 1e-2


@pytest.mark.parametrize("period", [1, 7, 500])
def test_a_scheduler_in_a_hook_is_left_to_it_and_its_pace_is_seen(period: int) -> None:
    model, calls = Model(), [0]
    optimizer = adamw(model)
    scheduler = lrs.LambdaLR(optimizer, lambda t: min(1.0, (t + 1) / 100))

    def after(*_: object) -> None:
        calls[0] += 1
        if calls[0] % period == 0:
            scheduler.step()

    optimizer.register_step_post_hook(after)
    result = sg.check(model, loss_of(model), batches(), optimizer)
    seen = result.facts["schedule"].steps_per_tick
    taken = result.rehearsal.taken
    assert seen == pytest.approx(taken / max(1, taken // period))
    assert (result.rehearsal.peak_from is None) == (period == 500)
    assert any("did not tick" in note for note in result.notes) == (period == 500)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"budget": 1}, "at least 2"),
        ({"accumulate": 0}, "accumulate=0"),
        ({"lr": -1.0}, "lr=-1.0"),
        ({"clip": 0}, "clip=0"),
        ({"precision": "fp7"}, "fp32, bf16 or fp16"),
        ({"seconds": 0}, "seconds=0"),
        ({"warmup": -3}, "warmup=-3"),
    ],
)
def test_settings_that_make_no_sense(given: dict[str, object], words: str) -> None:
    model = Model()
    with pytest.raises(sg.InputError, match=words):
        sg.check(model, loss_of(model), batches(), adamw(model), **given)


def test_an_optimizer_of_another_model() -> None:
    with pytest.raises(sg.InputError, match="no parameter of this model"):
        sg.check(model := Model(), loss_of(model), batches(), adamw(Model()))
    with pytest.raises(sg.InputError, match="the order is"):
        sg.check(model, adamw(model), loss_of(model), batches())


def test_each_group_goes_to_its_own_peak() -> None:
    model = Model()
    groups = [{"params": model.mlps.parameters()}, {"params": model.head.parameters(), "lr": 1e-4}]
    optimizer = torch.optim.AdamW(groups, lr=1e-2)
    assert paces.scheduler_of(optimizer) is None
    kept = lrs.LinearLR(optimizer, 0.1, total_iters=30)
    assert paces.scheduler_of(optimizer) is kept
    pace, known, notes = paces.paced(optimizer, 50, schedule=kept)
    assert pace.peaks == pytest.approx((1e-2, 1e-4), rel=1e-9)
    assert known.warmup_steps == 30
    assert notes == []
    for step in range(50):
        pace.before(step)
        rates = paces.rates_now(optimizer)
        optimizer.step()
        pace.after()
    assert rates == pytest.approx(pace.peaks)


def test_rates_that_are_tensors_are_set_in_place() -> None:
    optimizer = adamw(Model(), torch.tensor(0.5))
    tensor = optimizer.param_groups[0]["lr"]
    paces.set_rates(optimizer, (0.25,))
    assert optimizer.param_groups[0]["lr"] is tensor
    assert float(tensor) == 0.25
