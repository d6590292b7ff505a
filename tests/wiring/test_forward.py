"""The model is left as it was, and inputs that cannot be read give one clear line."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from streamgauge.errors import InputError
from streamgauge.wiring import read_wiring

D = 16


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.n, self.bn = nn.LayerNorm(D), nn.BatchNorm1d(D)
        self.ffn = nn.Sequential(nn.Linear(D, D), nn.Dropout(0.5), nn.GELU(), nn.Linear(D, D))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += 1
        x = x + self.ffn(self.n(x)) + 0 * torch.rand(())
        return x + self.ffn(self.bn(x.transpose(1, 2)).transpose(1, 2))


@pytest.mark.parametrize("training", [True, False])
def test_nothing_is_left_behind(training: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Block(), Block()).train(training)
    model[1].eval()
    x = torch.randn(2, 6, D, requires_grad=True)
    model(x).sum().backward()
    calls: list[int] = []
    handle = model[0].register_forward_hook(lambda *_: calls.append(1))
    state = copy.deepcopy(model.state_dict())
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    modes = [m.training for m in model.modules()]
    hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()]
    versions = [p._version for p in model.parameters()]
    random = torch.get_rng_state()
    input_gradient = x.grad.clone() if x.grad is not None else None
    read_wiring(model, x)
    assert torch.equal(torch.get_rng_state(), random)
    assert modes == [m.training for m in model.modules()]
    assert hooks == [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()]
    assert versions == [p._version for p in model.parameters()]
    assert all(torch.equal(state[k], v) for k, v in model.state_dict().items())
    assert all(torch.equal(a, p.grad) for a, p in zip(gradients, model.parameters(), strict=True))
    assert input_gradient is not None
    assert torch.equal(input_gradient, x.grad)
    assert calls == [1]
    handle.remove()


def test_the_model_is_left_as_it_was_when_it_raises() -> None:
    class Fails(Block):
        def forward(self, x: Tensor) -> Tensor:
            super().forward(x)
            raise ValueError("no luck")

    model = Fails().train()
    state = copy.deepcopy(model.state_dict())
    with pytest.raises(InputError, match=r"Fails raised on these inputs \(ValueError: no luck\)"):
        read_wiring(model, torch.randn(2, 6, D))
    assert model.training
    assert not model._forward_hooks
    assert not model._forward_pre_hooks
    assert all(torch.equal(state[k], v) for k, v in model.state_dict().items())
    assert torch.backends.mha.get_fastpath_enabled()


class Says(nn.Module):
    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value, self.w = value, nn.Linear(D, D)

    def forward(self, x: Tensor) -> Any:
        return self.value


class Odd(nn.Module):
    def forward(self, alpha: Tensor, beta: Tensor, gamma: Tensor) -> Tensor:
        return alpha @ beta @ gamma


@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize(
    ("model", "args", "line"),
    [
        (lambda: Says(None), (torch.ones(1, D),), "returned no tensor of floats; pass the module that computes"),
        (lambda: Says({"n": torch.ones(3, dtype=torch.long)}), (torch.ones(1, D),), "returned no tensor of floats"),
        (lambda: torch.jit.script(nn.Linear(D, D)), (torch.ones(1, D),), "traced module shows no operations"),
        (lambda: "gpt2", (torch.ones(1, D),), "takes a torch.nn.Module, not str"),
        (lambda: nn.Linear(D, D), (torch.ones(1, 3),), "Linear raised on these inputs (RuntimeError"),
        (Odd, (), "could not be guessed from its signature (alpha, beta, gamma)"),
    ],
    ids=["none", "no floats", "scripted", "no module", "raises", "no guess"],
)
def test_one_line_says_what_to_pass(model: Any, args: tuple[Any, ...], line: str) -> None:
    with pytest.raises(InputError) as caught:
        read_wiring(model(), *args)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_model_on_another_device_than_its_inputs() -> None:
    with pytest.raises(InputError, match="raised on these inputs"):
        read_wiring(nn.Sequential(nn.Linear(D, D)).to("meta"), torch.randn(2, D))


def test_meta_and_real_give_the_same() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(D, 2, 32, batch_first=True, norm_first=True)
    model = nn.TransformerEncoder(layer, 2, nn.LayerNorm(D), enable_nested_tensor=False)
    real = read_wiring(model, torch.randn(2, 6, D))
    assert read_wiring(model.to("meta"), torch.randn(2, 6, D, device="meta")) == real
