from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from streamgauge.gauge import watch
from streamgauge.gauge.target import is_compiled, original


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
