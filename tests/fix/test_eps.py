"""Remedies on the eps of norms."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from streamgauge import check, fix
from streamgauge.errors import InputError

CASE = Path(__file__).parents[1] / "cases" / "failing_runs" / "06_layernorm_eps_fp16.py"
IDS = torch.randint(1, 32, (2, 8), generator=torch.Generator().manual_seed(0))


class Written(nn.Module):
    """RMSNorm written out, with its eps under a name of transformers', or in the code."""

    def __init__(self, eps: float | None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))
        if eps is not None:
            self.variance_epsilon = eps

    def forward(self, x: Tensor) -> Tensor:
        eps = getattr(self, "variance_epsilon", 0.5)
        return self.weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps))


class Net(nn.Module):
    def __init__(self, *norms: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tok, self.norms = nn.Embedding(32, 16), nn.ModuleList(norms)
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)) for _ in norms)

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.tok(input_ids)
        for norm, mlp in zip(self.norms, self.mlps, strict=True):
            x = x + mlp(norm(x))
        return x


def found(model: nn.Module, name: str) -> bool:
    return any(f.name == name for f in check(model, inputs=(IDS,), select=[name]).findings)


def test_large_eps_become_the_usual_ones() -> None:
    model = Net(nn.LayerNorm(16, eps=1.0), Written(0.5), nn.LayerNorm(16, eps=1e-12))
    assert found(model, "eps-dominates")
    assert fix.apply(model, "eps-dominates") == ["norms.0.eps: 1 -> 1e-05", "norms.1.variance_epsilon: 0.5 -> 1e-06"]
    assert model.norms[2].eps == 1e-12
    assert not found(model, "eps-dominates")
    assert fix.apply(model, "eps-dominates") == []


def test_an_eps_in_the_code_is_named_and_nothing_changes() -> None:
    model = Net(nn.LayerNorm(16, eps=1.0), Written(None))
    with pytest.raises(InputError, match=r"norms\.1 has eps 0\.5 in its code"):
        fix.apply(model, "eps-dominates")
    assert model.norms[0].eps == 1.0


def test_an_eps_that_half_precision_loses_is_raised() -> None:
    model, optimizer, loss_fn, batches = runpy.run_path(str(CASE))["build"]()
    batch = next(batches)
    assert not loss_fn(batch).isfinite()
    changes = fix.apply(model, "eps-underflow", inputs=(batch[:, :-1],))
    assert len(changes) == 9
    assert changes[0] == "blocks.0.ln1.eps: 1e-12 -> 1e-05"
    assert loss_fn(batch).isfinite()
    result = check(model, loss_fn, batches, optimizer, budget=10)
    assert "eps-underflow" not in {f.name for f in result.findings}
    assert fix.apply(model, "eps-underflow", inputs=(batch[:, :-1],)) == []


def test_fused_norms_in_half_precision_are_left_alone() -> None:
    model = Net(nn.LayerNorm(16, eps=1e-12)).half()
    assert fix.apply(model, "eps-underflow", inputs=(IDS,)) == []
    assert model.norms[0].eps == 1e-12
