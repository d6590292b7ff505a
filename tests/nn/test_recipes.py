from __future__ import annotations

import pytest
import torch

from streamgauge import nn
from streamgauge.errors import InputError


def test_decay_acts_on_matrices_alone() -> None:
    net = nn.Decoder(11, 2, 8, 2, tied=True)
    groups, _ = nn.recipe(net, lr=3e-4, weight_decay=0.05)
    decay = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    assert len(decay) == len(list(net.parameters()))
    for name, p in net.named_parameters():
        one_dimensional = name.endswith("bias") or "norm" in name or "exit" in name
        assert decay[id(p)] == (0.0 if one_dimensional else 0.05), name
    assert {group["lr"] for group in groups} == {3e-4}
    torch.optim.AdamW(groups)


def test_frozen_parameters_stay_out() -> None:
    net = nn.Decoder(11, 1, 8, 2)
    net.token.weight.requires_grad_(False)
    listed = [id(p) for group in nn.recipe(net, lr=1e-3)[0] for p in group["params"]]
    assert id(net.token.weight) not in listed
    assert len(listed) == len(list(net.parameters())) - 1


@pytest.mark.parametrize(("scheme", "steps"), [("post", 4000), ("b2t", 4000), ("pre", 0), ("sandwich", 0), ("none", 0)])
def test_warm_up_goes_by_the_scheme(scheme: str, steps: int) -> None:
    advice = nn.recipe(nn.Decoder(11, 1, 8, 2, scheme), lr=1e-3)[1]
    assert advice.warmup == steps
    assert ("4000 steps" in str(advice)) == (steps > 0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"lr": 0}, "lr must be a positive number"),
        ({"lr": float("inf")}, "lr must be"),
        ({"lr": "3e-4"}, "lr must be"),
        ({"lr": 1e-3, "weight_decay": -1}, "weight_decay must be"),
    ],
)
def test_numbers_that_cannot_be_used_are_refused(options: dict, says: str) -> None:
    with pytest.raises(InputError, match=says):
        nn.recipe(nn.Decoder(11, 1, 8, 2), **options)


def test_a_foreign_model_is_refused() -> None:
    with pytest.raises(InputError, match="needs a model of"):
        nn.recipe(torch.nn.Linear(2, 2), lr=1e-3)
