from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from streamgauge.preflight import probes
from streamgauge.preflight.objective import Inputs
from streamgauge.wiring import read_wiring


class Block(nn.Module):
    def __init__(self, width: int, dead: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        if dead:
            nn.init.zeros_(self.mlp[2].weight)
            nn.init.zeros_(self.mlp[2].bias)

    def forward(self, x: Tensor, causal: bool, mask: Tensor | None) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        scores = q @ k.transpose(1, 2)
        if causal:
            scores = scores + torch.full((x.shape[1], x.shape[1]), -1e9).triu(1)
        if mask is not None:
            scores = scores.masked_fill(mask[:, None, :] == 0, -1e9)
        x = x + self.out(scores.softmax(-1) @ v)
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self, *, causal: bool = True, blind: bool = False, uses_mask: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.causal, self.blind, self.uses_mask = causal, blind, uses_mask
        self.tok, self.drop = nn.Embedding(11, 16), nn.Dropout(0.3)
        self.blocks = nn.ModuleList(Block(16, dead=i == 1) for i in range(2))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 11)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        x = self.drop(self.tok(input_ids * 0 if self.blind else input_ids))
        for block in self.blocks:
            x = block(x, self.causal, attention_mask if self.uses_mask else None)
        return self.head(self.norm(x))


IDS = torch.randint(11, (4, 10), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("causal", "leaks"), [(True, False), (False, True)])
def test_future(causal: bool, leaks: bool) -> None:
    model = Model(causal=causal)
    probe = probes.future(model, Inputs((IDS,), {}), IDS)
    assert probe is not None
    assert (probe.change > 1e-2) == leaks
    assert probe.noise == 0.0
    assert leaks or probe.change == 0.0


def test_modes_and_random_numbers_are_left_alone() -> None:
    model = Model()
    model.blocks[0].eval()
    modes, state = [m.training for m in model.modules()], torch.get_rng_state()
    probes.future(model, Inputs((IDS,), {}), IDS)
    assert [m.training for m in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(("uses_mask", "moves"), [(True, False), (False, True)])
@pytest.mark.parametrize("padded", [True, False])
def test_padding(uses_mask: bool, moves: bool, padded: bool) -> None:
    model = Model(causal=False, uses_mask=uses_mask)
    mask = torch.ones_like(IDS)
    if padded:
        mask[1:, 7:] = 0
    probe = probes.padding(model, Inputs((IDS,), {"attention_mask": mask}), IDS)
    assert probe is not None
    assert (probe.change > 1e-3) == moves
    assert probes.padding(model, Inputs((IDS,), {}), IDS) is None


@pytest.mark.parametrize("blind", [True, False])
def test_sensitivity(blind: bool) -> None:
    probe = probes.sensitivity(Model(blind=blind), Inputs((), {"input_ids": IDS}), IDS)
    assert probe is not None
    assert (probe.change == 0.0) == blind


def test_skip_is_the_difference_of_two_losses() -> None:
    model = Model().eval()
    wiring = read_wiring(model, IDS)

    def loss() -> Tensor:
        return F.cross_entropy(model(IDS).flatten(0, 1), IDS.flatten())

    found = probes.skip(model, wiring.joins, loss)
    assert len(found) == 4
    base = float(loss().detach())
    with torch.no_grad():
        weight, bias = model.blocks[0].out.weight.clone(), model.blocks[0].out.bias.clone()
        model.blocks[0].out.weight.zero_()
        model.blocks[0].out.bias.zero_()
        without = float(loss())
        model.blocks[0].out.weight.copy_(weight)
        model.blocks[0].out.bias.copy_(bias)
    assert found[0].change == pytest.approx(without - base, abs=1e-6)
    assert abs(found[0].change) > 1e-4
    assert found[3].change == 0.0
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
