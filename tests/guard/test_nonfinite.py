from __future__ import annotations

import pytest
import torch
from torch import nn

from streamgauge.errors import InputError
from streamgauge.guard import Guard, NonFiniteGradientError


def one_step(model: nn.Module, opt: torch.optim.Optimizer, poison: float | None = None) -> None:
    opt.zero_grad()
    model(torch.ones(2, 3)).sum().backward()
    if poison is not None:
        next(model.parameters()).grad[0, 0] = poison
    opt.step()


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), float("-inf")])
def test_a_poisoned_step_leaves_no_trace(poison: float) -> None:
    torch.manual_seed(0)
    model, twin = nn.Linear(3, 2), nn.Linear(3, 2)
    twin.load_state_dict(model.state_dict())
    opt, clean = (torch.optim.AdamW(m.parameters(), lr=0.1) for m in (model, twin))
    with Guard(model, opt) as guard:
        for step in range(4):
            one_step(model, opt, poison if step == 2 else None)
            if step != 2:
                one_step(twin, clean)
    assert guard.skipped == [2]
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))


def test_raise_names_the_parameter_and_touches_nothing() -> None:
    model = nn.Linear(3, 2)
    before = model.weight.detach().clone()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    with (
        Guard(model, opt, policy="raise"),
        pytest.raises(NonFiniteGradientError, match="step 0: the gradient of weight"),
    ):
        one_step(model, opt, float("nan"))
    assert torch.equal(model.weight, before)


def test_closed_guard_stands_aside() -> None:
    model = nn.Linear(3, 2)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    Guard(model, opt).close()
    one_step(model, opt, float("nan"))
    assert torch.isnan(model.weight).any()


def test_unknown_policy() -> None:
    model = nn.Linear(3, 2)
    with pytest.raises(InputError, match="did you mean 'skip'"):
        Guard(model, torch.optim.SGD(model.parameters(), lr=0.1), policy="skp")  # type: ignore[arg-type]
