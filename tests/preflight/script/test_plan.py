from __future__ import annotations

import pytest
import torch

from streamgauge.preflight.pace import START
from streamgauge.preflight.script.plan import FEWEST, SHORT, Plan


def optimizer(lr: float | torch.Tensor) -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)


@pytest.mark.parametrize(
    ("evaluations", "accumulate", "steps"), [(42, 1, 42), (42, 8, FEWEST), (6, 1, 6), (420, 4, 105)]
)
def test_number_of_steps(evaluations: int, accumulate: int, steps: int) -> None:
    plan = Plan(evaluations, 100.0)
    assert not plan.over(10_000), "nothing has begun"
    plan.begin(accumulate)
    assert plan.steps == steps
    assert not plan.over(steps - 1)
    assert plan.over(steps)


def test_the_rate_rises_over_half_of_the_steps_that_are_left() -> None:
    """40 steps, rising from step 8: by 1/16 a step, at the peak from step 23, as `preflight.pace` does it."""
    plan = Plan(40, 100.0)
    plan.begin(1)
    assert plan.share(START, START) == pytest.approx(1 / 16)
    assert plan.share(15, START) == pytest.approx(8 / 16)
    assert plan.share(23, START) == plan.share(39, START) == 1.0


@pytest.mark.parametrize("rate", [0.1, torch.tensor(0.1)], ids=["float", "tensor"])
def test_rates_are_raised_and_put_back(rate: float | torch.Tensor) -> None:
    plan, steps = Plan(40, 100.0), optimizer(rate)
    plan.begin(1)
    held = steps.param_groups[0]["lr"]
    assert not plan.raise_rates(steps, [0.5], 5, None)
    assert plan.raise_rates(steps, [0.5], 39, START)
    assert float(steps.param_groups[0]["lr"]) == pytest.approx(0.5)
    plan.lower_rates()
    assert steps.param_groups[0]["lr"] is held
    assert float(held) == pytest.approx(0.1)
    assert not plan.raise_rates(steps, [0.05], 39, START), "a rate above its peak stays"


def test_a_rate_that_was_set_within_the_step_stays() -> None:
    plan, steps = Plan(40, 100.0), optimizer(0.1)
    plan.begin(1)
    plan.raise_rates(steps, [0.5], 39, START)
    steps.param_groups[0]["lr"] = 0.2
    plan.lower_rates()
    assert steps.param_groups[0]["lr"] == 0.2


def test_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    plan = Plan(40, 10.0)
    plan.begin(1)
    now[0] = 11.0
    assert not plan.over(SHORT - 1)
    assert plan.over(SHORT)
    assert "cut short after 10 s" in plan.told([])
    now[0] = 21.0
    assert plan.over(1)
