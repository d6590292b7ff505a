"""A watched model is copied, saved and pickled like any other."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from streamgauge.gauge import watch
from streamgauge.vocabulary import Wiring


def saved(model: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)  # type: ignore[no-any-return]


@pytest.mark.filterwarnings("ignore:streamgauge")
@pytest.mark.parametrize("between", [False, True], ids=["armed", "between forward and backward"])
@pytest.mark.parametrize("copied", [copy.deepcopy, saved, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_of_a_watched_model_carry_an_inert_hook(
    toy: SimpleNamespace, copied: Callable[[nn.Module], nn.Module], between: bool
) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    x = torch.randn(2, 3, 4)
    join = toy.join(0, "1", branch_tap=None)
    with watch(model, every=1, wiring=Wiring(joins=(join,))) as gauge:
        loss = model(x).square().mean() if between else None
        twin = copied(model)
        expected = model(x)
        assert torch.equal(twin(x), expected)
        assert any(m._forward_pre_hooks for m in model.modules())
        loss = model(x).square().mean() if loss is None else loss
        loss.backward()
        gauge.step(loss)
        count = len(gauge.readings("loss"))
        twin(x).mean().backward()
        assert len(gauge.readings("loss")) == count
    assert b"streamgauge" not in pickle.dumps(twin)


def test_a_deepcopy_in_the_loop_changes_neither_losses_nor_readings(toy: SimpleNamespace) -> None:
    found = []
    for copies in (False, True):
        model = toy.build()
        optimizer = toy.adam(model)
        torch.manual_seed(3)
        with watch(model, optimizer, every=1, wiring=toy.wiring(3)) as gauge:
            each = (lambda step, model=model: copy.deepcopy(model)) if copies else (lambda step: None)
            losses = toy.train(model, optimizer, 4, gauge, each=each)
            found.append((losses, gauge.readings("stream_rms").values.tolist()))
    assert found[0] == found[1]
