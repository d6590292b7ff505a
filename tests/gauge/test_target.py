from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from streamgauge.gauge import measure, watch
from streamgauge.gauge.target import is_compiled, original
from streamgauge.wiring import read_wiring


def test_a_plain_model_is_its_own_original(toy: SimpleNamespace) -> None:
    model = toy.build()
    assert original(model) is model
    assert not is_compiled(model)


def test_a_compiled_part_is_noticed_and_unwrapped(toy: SimpleNamespace) -> None:
    model = toy.build()
    compiled = torch.compile(model, backend="eager")
    assert is_compiled(compiled)
    assert original(compiled) is model
    model.blocks[1].compile(backend="eager")
    assert is_compiled(model)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The .grad attribute:UserWarning")
@pytest.mark.parametrize("how", ["torch.compile", "model.compile", "block.compile"])
def test_compiled_models_are_measured_and_compiled_once(toy: SimpleNamespace, how: str) -> None:
    graphs: list[int] = []

    def backend(graph: torch.fx.GraphModule, _: object) -> object:
        graphs.append(1)
        return graph.forward

    torch._dynamo.reset()
    plain, inner = toy.build().eval(), toy.build().eval()
    model = torch.compile(inner, backend=backend) if how == "torch.compile" else inner
    if how == "model.compile":
        inner.compile(backend=backend)
    if how == "block.compile":
        for block in inner.blocks:
            block.compile(backend=backend)
    optimizer = toy.adam(plain)
    with watch(plain, optimizer, every=3, wiring=toy.wiring(3)) as expected:
        losses = toy.train(plain, optimizer, 7, expected)
    optimizer = toy.adam(inner)
    per_step = []
    with watch(model, optimizer, every=3, wiring=toy.wiring(3)) as gauge:
        found = toy.train(model, optimizer, 7, gauge, each=lambda _: per_step.append(len(graphs)))
    assert found == pytest.approx(losses, rel=1e-6)
    assert gauge.readings("stream_rms").steps.tolist() == [0, 3, 6]
    assert gauge.readings("retention").values == pytest.approx(expected.readings("retention").values, rel=1e-5)
    assert per_step[0] == 0
    assert per_step[1] > 0
    assert per_step[-1] == per_step[1]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("read_from", ["wrapper", "original"])
@pytest.mark.parametrize("how", ["whole", "block"])
def test_a_wiring_read_from_wrapper_or_original_serves_both(toy: SimpleNamespace, how: str, read_from: str) -> None:
    torch._dynamo.reset()
    plain, inner = toy.build().eval(), toy.build().eval()
    ids = toy.batch(0)
    wiring = read_wiring(plain, ids)
    expected = measure(plain, wiring, lambda: toy.loss_of(plain, ids))["stream_rms"].values
    model = torch.compile(inner, backend="eager") if how == "whole" else inner
    if how == "block":
        inner.blocks[1] = torch.compile(inner.blocks[1], backend="eager")
    if read_from == "wrapper":
        wiring = read_wiring(model, ids)
        assert "_orig_mod" in str(wiring.to_dict())
    assert measure(model, wiring, lambda: toy.loss_of(model, ids))["stream_rms"].values == pytest.approx(expected)
    with watch(model, every=1, wiring=wiring) as gauge:
        loss = toy.loss_of(model, ids)
        loss.backward()
        gauge.step(loss)
    assert gauge.readings("stream_rms").values == pytest.approx(expected)
