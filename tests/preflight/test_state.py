from __future__ import annotations

import copy
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler as lrs

from streamgauge.preflight.state import preserved

COUNT = 0


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.bn, self.drop, self.b = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2)
        self.register_buffer("hidden", torch.zeros(3), persistent=False)
        self.calls, self.trace, self.last = 0, [], None
        self.b.bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.trace.append(self.calls)
        self.last = x
        self.hidden.add_(1.0)
        return self.b(self.drop(torch.relu(self.bn(self.a(x)))))


class Factored(torch.optim.Optimizer):
    """Like Adafactor: one state of several shapes in a list, a counter in the group, an attribute of its own."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 1e-2, "seen": 0})
        self.total = 0

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:
        self.total += 1
        for group in self.param_groups:
            group["seen"] += 1
            for p in group["params"]:
                if p.grad is not None:
                    factors = self.state[p].setdefault("factors", [torch.zeros(p.shape[0]), torch.zeros(())])
                    factors[0].add_(p.grad.flatten(1).square().mean(1) if p.dim() > 1 else p.grad.square())
                    factors[1] = factors[1] + 1
                    p.sub_(group["lr"] * p.grad)


OPTIMIZERS: dict[str, Callable[[Net], torch.optim.Optimizer]] = {
    "adamw": lambda m: torch.optim.AdamW(m.parameters(), lr=1e-2),
    "amsgrad": lambda m: torch.optim.Adam(m.parameters(), lr=torch.tensor(1e-2), amsgrad=True, foreach=False),
    "sgd": lambda m: torch.optim.SGD(m.parameters(), lr=1e-2, momentum=0.9),
    "factored": lambda m: Factored(m.parameters()),
    "groups": lambda m: torch.optim.AdamW([{"params": m.a.parameters(), "lr": 1e-3}, {"params": m.b.weight}]),
}
SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "none": lambda o: None,
    "lambda": lambda o: lrs.LambdaLR(o, lambda s: (s + 1) / 10),
    "sequence": lambda o: lrs.SequentialLR(
        o, [lrs.LinearLR(o, 0.1, total_iters=2), lrs.CosineAnnealingLR(o, 5)], milestones=[2]
    ),
    "plateau": lambda o: lrs.ReduceLROnPlateau(o, patience=0),
}


def train(model: Net, optimizer: Any, schedule: Any, scaler: Any, steps: int, accumulate: int = 1) -> list[float]:
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(accumulate):
            x = torch.randn(6, 4) + float(np.random.rand()) + random.random()
            loss = model(x).square().mean()
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        if isinstance(schedule, lrs.ReduceLROnPlateau):
            schedule.step(1.0)
        elif schedule is not None:
            schedule.step()
        losses.append(float(loss.detach()))
    return losses


def picture(model: Net, optimizer: Any, schedule: Any, scaler: Any) -> Any:
    """A deep copy of everything, with the identity of each tensor."""
    grads = [None if p.grad is None else (id(p.grad), p.grad.clone()) for p in model.parameters()]
    where = [(id(t), t.data_ptr()) for t in (*model.parameters(), *model.buffers())]
    state = {k: v for k, v in vars(schedule).items() if k not in ("optimizer", "lr_lambdas")} if schedule else None
    flags = [(m.training, m.__dict__.get("calls"), list(m.__dict__.get("trace", []))) for m in model.modules()]
    return copy.deepcopy(
        {
            "values": [t.detach() for t in (*model.parameters(), *model.buffers())],
            "where": where,
            "grads": grads,
            "wants": [p.requires_grad for p in model.parameters()],
            "flags": flags,
            "optimizer": optimizer.state_dict(),
            "groups": [(id(g), {k: v for k, v in g.items() if k != "params"}) for g in optimizer.param_groups],
            "states": len(optimizer.state),
            "own": {k: v for k, v in vars(optimizer).items() if isinstance(v, int)},
            "schedule": None if state is None else {k: v for k, v in state.items() if not k.startswith("_sched")},
            "scaler": scaler.state_dict(),
            "random": (random.getstate(), np.random.get_state(), torch.get_rng_state()),
        }
    )


def assert_same(a: Any, b: Any, path: str = "") -> None:
    assert type(a) is type(b), path
    if isinstance(a, Tensor):
        assert a.dtype == b.dtype, path
        assert torch.equal(a.view(torch.uint8) if a.dim() else a, b.view(torch.uint8) if b.dim() else b), path
    elif isinstance(a, np.ndarray):
        assert np.array_equal(a, b), path
    elif isinstance(a, dict):
        assert a.keys() == b.keys(), path
        for key in a:
            assert_same(a[key], b[key], f"{path}.{key}")
    elif isinstance(a, list | tuple):
        assert len(a) == len(b), path
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_same(x, y, f"{path}[{i}]")
    elif not callable(a) and not isinstance(a, SimpleNamespace):
        assert a == b, path


@pytest.mark.parametrize("steps_before", [0, 3])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_all_is_as_before_and_training_goes_on_as_if_nothing_had_been(
    kind: str, schedule: str, steps_before: int
) -> None:
    def run(rehearse: bool) -> list[float]:
        torch.manual_seed(3), np.random.seed(3), random.seed(3)
        model = Net()
        optimizer = OPTIMIZERS[kind](model)
        planned = SCHEDULES[schedule](optimizer)
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2)
        train(model, optimizer, planned, scaler, steps_before)
        if rehearse:
            before = picture(model, optimizer, planned, scaler)
            with preserved(model, optimizer, schedule=planned, scaler=scaler):
                assert all(p.grad is None for p in model.parameters())
                model.eval(), model.a.train()
                model.a.weight.requires_grad_(False)
                model.a.weight.requires_grad_(True)
                train(model, optimizer, planned, scaler, 3, accumulate=2)
                model.fresh = torch.ones(2)
            assert_same(before, picture(model, optimizer, planned, scaler))
            assert not hasattr(model, "fresh")
        return train(model, optimizer, planned, scaler, 4)

    assert run(False) == run(True)


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_a_fault_inside_stays_visible_and_all_is_put_back(error: type[BaseException]) -> None:
    model = Net()
    optimizer = OPTIMIZERS["adamw"](model)
    scaler = torch.amp.GradScaler("cpu")
    before = picture(model, optimizer, None, scaler)

    def fail() -> None:
        with preserved(model, optimizer, scaler=scaler):
            train(model, optimizer, None, scaler, 2)
            raise error("mine")

    with pytest.raises(error, match="mine"):
        fail()
    assert_same(before, picture(model, optimizer, None, scaler))


def test_replaced_tensors_come_back_in_their_old_storage() -> None:
    model = Net()
    weight, pointer, value = model.a.weight, model.a.weight.data_ptr(), model.a.weight.detach().clone()
    with preserved(model):
        model.half()
        model.a.weight = nn.Parameter(torch.zeros(8, 4))
    assert model.a.weight is weight
    assert weight.dtype == torch.float32
    assert weight.data_ptr() == pointer
    assert torch.equal(weight, value)


def test_what_closures_globals_and_objects_keep_is_put_back() -> None:
    class Keeper:
        def __init__(self) -> None:
            self.seen, self.generator = [], torch.Generator().manual_seed(1)

        def __call__(self, x: Tensor) -> Tensor:
            self.seen.append(float(x.sum()))
            return torch.rand((), generator=self.generator)

    keeper, calls, box, teacher = Keeper(), 0, [0], nn.BatchNorm1d(4)

    def loss(x: Tensor) -> Tensor:
        global COUNT
        nonlocal calls
        calls, COUNT = calls + 1, COUNT + 1
        box[0] += 1
        return teacher(x).mean() + keeper(x)

    state = keeper.generator.get_state()
    with preserved(Net(), functions=[loss]) as kept:
        loss(torch.randn(5, 4))
        assert (calls, box, COUNT, len(keeper.seen)) == (1, [1], 1, 1)
    assert (calls, box, COUNT, keeper.seen) == (0, [0], 0, [])
    assert torch.equal(keeper.generator.get_state(), state)
    assert float(teacher.running_mean.abs().sum()) == 0.0
    assert int(teacher.num_batches_tracked) == 0
    assert kept.notes == []


def test_what_has_a_position_of_its_own_is_named() -> None:
    stream = (i for i in range(10))
    with preserved(Net(), functions=[lambda x: x + next(stream)]) as kept:
        assert next(stream) == 0
    assert next(stream) == 1
    assert [note for note in kept.notes if "generator" in note]


def test_data_that_a_function_can_see_are_not_copied() -> None:
    data, small = torch.zeros(1 << 23), torch.zeros(4)

    def loss(x: Tensor) -> Tensor:
        return data[:4] + small + x

    with preserved(Net(), functions=[loss]) as kept:
        small += 1
    assert float(small.sum()) == 0.0
    assert any("33,554,432" in note for note in kept.notes)


def test_a_schedule_hidden_in_a_hook_of_the_optimizer_is_found() -> None:
    model = Net()
    optimizer = OPTIMIZERS["adamw"](model)
    schedule, calls = lrs.LambdaLR(optimizer, lambda s: (s + 1) / 10), [0]

    def after(*_: Any) -> None:
        calls[0] += 1
        schedule.step()

    optimizer.register_step_post_hook(after)
    with preserved(model, optimizer) as kept:
        assert kept.schedulers == [schedule]
        train(model, optimizer, None, torch.amp.GradScaler("cpu", enabled=False), 3)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(4e-3)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(1e-3)
    assert (schedule.last_epoch, calls) == (0, [0])


def test_the_generator_of_a_data_loader_is_put_back() -> None:
    generator = torch.Generator().manual_seed(5)
    loader = torch.utils.data.DataLoader(list(range(20)), batch_size=4, shuffle=True, generator=generator)
    want = [b.tolist() for b in copy.deepcopy(loader)]
    with preserved(Net(), batches=loader):
        list(loader)
    assert [b.tolist() for b in loader] == want


def test_overlapping_and_meta_tensors_do_no_harm() -> None:
    model = nn.Linear(2, 2)
    model.register_buffer("wide", torch.ones(1).expand(3))
    with preserved(model) as kept:
        pass
    assert float(model.wide.sum()) == 3.0
    assert len(kept.notes) <= 1
    with torch.device("meta"):
        nothing = nn.Linear(2, 2)
    with preserved(nothing):
        pass
