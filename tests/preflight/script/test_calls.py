from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from streamgauge.preflight.script.calls import Calls, Method, owners
from streamgauge.preflight.script.patches import Patches


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.found: list[tuple[nn.Module, str]] = []

    def forward(self, x: Tensor) -> Tensor:
        self.found = owners(self)
        return self.linear(x)


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()
        self.register_buffer("shift", torch.ones(2))

    def loss(self, x: Tensor) -> Tensor:
        return (self.inner(x) + self.shift).sum()

    def fit(self, x: Tensor) -> Tensor:
        return self.loss(x)


@pytest.fixture
def met() -> list[nn.Module]:
    return []


@pytest.fixture
def calls(met: list[nn.Module]) -> Iterator[Calls]:
    patches = Patches()
    yield Calls(patches, lambda module, args, kwargs: met.append(module))
    patches.undo()


def test_only_the_outermost_call_that_records_gradients(calls: Calls, met: list[nn.Module]) -> None:
    inner = Inner()
    stack = nn.Sequential(inner)
    stack(torch.ones(2))
    with torch.no_grad():
        stack(torch.ones(2))
    inner(torch.ones(2))
    assert met == [stack, inner]


def test_a_call_that_fails_ends_all_the_same(calls: Calls, met: list[nn.Module]) -> None:
    linear = nn.Linear(2, 2)
    with pytest.raises(RuntimeError):
        nn.Sequential(linear)(torch.ones(3))
    linear(torch.ones(2))
    assert met[-1] is linear


def test_recomputation_in_the_backward_is_no_call_of_the_script(calls: Calls, met: list[nn.Module]) -> None:
    linear = nn.Linear(2, 2)

    class Checkpointed(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return checkpoint(linear, x, use_reentrant=False)

    model = Checkpointed()
    loss = model(torch.ones(2)).sum()
    calls.enter()
    loss.backward()
    calls.leave()
    assert met == [model]


def test_owners_from_the_inside_out() -> None:
    outer = Outer()
    outer.fit(torch.ones(2))
    assert [(type(owner).__name__, name) for owner, name in outer.inner.found] == [("Outer", "loss"), ("Outer", "fit")]
    outer.inner(torch.ones(2))
    assert outer.inner.found == []


def test_a_method_as_a_module() -> None:
    outer = Outer()
    x = torch.ones(2)
    before = outer.loss(x)
    method = Method(outer, "loss")
    method.install()
    seen: list[Any] = []
    method.register_forward_hook(lambda module, args, output: seen.append(output))
    assert torch.equal(outer.loss(x), before)
    assert len(seen) == 1
    assert dict(method.named_parameters()) == dict(outer.named_parameters())
    assert dict(method.named_buffers()) == dict(outer.named_buffers())
    assert method not in set(outer.modules())
    assert list(outer.state_dict()) == ["shift", "inner.linear.weight", "inner.linear.bias"]
