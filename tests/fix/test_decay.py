from __future__ import annotations

import pytest
import torch
from torch import nn

from streamgauge import fix
from streamgauge.errors import InputError


def test_gains_and_biases_leave_the_decay() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    opt = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    model(torch.randn(3, 4)).square().sum().backward()
    opt.step()
    moments = opt.state[model[1].weight]["exp_avg"].clone()
    changes = fix.apply(model, "decay-on-gains", opt)
    assert changes == [f"{n}: weight decay 0.5 -> 0" for n in ("0.bias", "1.weight", "1.bias")]
    assert torch.equal(opt.state[model[1].weight]["exp_avg"], moments)

    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    opt.state.clear()
    opt.step()
    assert torch.equal(model[1].weight, before["1.weight"])
    torch.testing.assert_close(model[0].weight, before["0.weight"] * (1 - 0.1 * 0.5))


def test_nothing_to_do_changes_nothing() -> None:
    model = nn.Linear(2, 2)
    opt = torch.optim.Adam(model.parameters())
    groups = [dict(g) for g in opt.param_groups]
    assert fix.apply(model, "decay-on-gains", opt) == []
    assert [dict(g) for g in opt.param_groups] == groups


def test_errors_say_what_to_pass() -> None:
    with pytest.raises(InputError, match="pass optimizer="):
        fix.apply(nn.Linear(2, 2), "decay-on-gains")
    with pytest.raises(InputError, match="did you mean 'decay-on-gains'"):
        fix.apply(nn.Linear(2, 2), "decay-on-gain")
