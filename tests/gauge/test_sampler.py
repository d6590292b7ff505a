"""When the model carries hooks, and what they see."""

from __future__ import annotations

import math
import warnings
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from streamgauge.gauge import GaugeWarning, watch
from streamgauge.vocabulary import Tap, Wiring

PLACE = ("stream_rms", "branch_ratio", "cosine", "cosine_excess", "token_cosine", "grad_rms", "retention")


def hooks(model: nn.Module) -> dict[str, list[int]]:
    """Every hook of every module, by name of the dictionary that holds it."""
    kept = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    more = ("_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs", "_forward_hooks_always_called")
    return {
        f"{path}.{name}": list(getattr(module, name))
        for path, module in model.named_modules()
        for name in kept + more
        if getattr(module, name)
    }


def test_in_place_additions_read_like_others(toy: SimpleNamespace) -> None:
    tables = []
    for in_place in (False, True):
        model = toy.build(in_place=in_place)
        optimizer = toy.adam(model)
        with watch(model, optimizer, wiring=toy.wiring(3)) as gauge:
            torch.manual_seed(1)
            toy.train(model, optimizer, 1, gauge)
        tables.append({name: gauge.readings(name).values for name in gauge.readings_so_far().signals})
    for name in PLACE:
        assert tables[1][name] == pytest.approx(tables[0][name], rel=1e-9), name


def test_unsampled_steps_carry_no_hook_and_sampled_ones_leave_none(toy: SimpleNamespace) -> None:
    model = toy.build()
    own = model.blocks[1].register_forward_hook(lambda *_: None)
    before = hooks(model)
    optimizer = toy.adam(model)
    during = []
    model.head.register_forward_pre_hook(lambda *_: during.append(hooks(model)))
    with_probe = hooks(model)
    with watch(model, optimizer, every=3, wiring=toy.wiring(3)) as gauge:
        toy.train(model, optimizer, 5, gauge)
    assert [seen == with_probe for seen in during] == [False, True, True, False, True]
    assert hooks(model) == with_probe
    assert before.items() <= with_probe.items()
    own.remove()


def test_an_exception_in_the_forward_pass_does_so_too(toy: SimpleNamespace) -> None:
    model = toy.build()
    with pytest.raises(IndexError), watch(model, toy.adam(model), wiring=toy.wiring(3)) as gauge:
        gauge.step(toy.loss_of(model, torch.tensor([[99]])))
    assert hooks(model) == {}


def test_readings_match_a_forward_pass_written_out(toy: SimpleNamespace) -> None:
    model = toy.build().eval()
    ids = toy.batch(0)
    x = model.embed(ids).requires_grad_()
    streams, branches = [x], []
    for block in model.blocks:
        branches.append(block.f(block.norm(streams[-1])))
        streams.append(streams[-1] + branches[-1])
    loss = torch.nn.functional.cross_entropy(model.head(streams[-1]).flatten(0, 1), ids.flatten())
    grads = [g.square().mean().sqrt().item() for g in torch.autograd.grad(loss, streams)]
    rms = [s.square().mean().sqrt().item() for s in streams]
    with watch(model, wiring=toy.wiring(3)) as gauge:
        loss = toy.loss_of(model, ids)
        loss.backward()
        gauge.step(loss)
    ratios = [b.square().mean().sqrt().item() / r for b, r in zip(branches, rms, strict=False)]
    assert gauge.readings("stream_rms").values[0] == pytest.approx(rms[1:], rel=1e-5)
    assert gauge.readings("branch_ratio").values[0] == pytest.approx(ratios, rel=1e-5)
    assert gauge.readings("grad_rms").values[0] == pytest.approx(grads[1:], rel=1e-5)
    assert gauge.readings("retention").values[0] == pytest.approx([grads[k] / grads[k + 1] for k in range(3)], rel=1e-5)
    assert gauge.readings("retention_total").values[0, 0] == pytest.approx(grads[0] / grads[3], rel=1e-5)


def test_evaluation_without_gradients_is_not_recorded(toy: SimpleNamespace) -> None:
    model = toy.build()
    with watch(model, every=1, wiring=toy.wiring(3)) as gauge:
        for step in range(2):
            loss = toy.loss_of(model.eval(), toy.batch(0))
            loss.backward()
            with torch.no_grad():
                model(toy.batch(9))
            gauge.step(loss)
            with torch.inference_mode():
                assert model(toy.batch(9)).shape == (4, 6, 11)
                assert hooks(model).keys() <= {"._forward_pre_hooks", "._forward_pre_hooks_with_kwargs"}, step
    first, second = gauge.readings("stream_rms").values
    assert first == pytest.approx(second, rel=1e-12)


def test_of_several_passes_in_a_step_the_last_with_a_gradient_counts(toy: SimpleNamespace) -> None:
    alone = toy.build().eval()
    with watch(alone, wiring=toy.wiring(3)) as gauge:
        loss = toy.loss_of(alone, toy.batch(1))
        loss.backward()
        gauge.step(loss)
    expected = {name: gauge.readings(name).values for name in ("stream_rms", "grad_rms", "retention")}

    model = toy.build().eval()
    with watch(model, wiring=toy.wiring(3)) as gauge:
        for seed in (0, 1):
            loss = toy.loss_of(model, toy.batch(seed))
            loss.backward()
        model(toy.batch(2))
        gauge.step(loss)
        gauge.step(loss)
    for name, values in expected.items():
        assert gauge.readings(name).values[:1] == pytest.approx(values, rel=1e-9)
    rate = gauge.readings("tokens_per_s").values * gauge.readings("step_time").values
    assert rate[0, 0] == pytest.approx(3 * 24, rel=1e-9)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_models_are_watched(toy: SimpleNamespace, dtype: torch.dtype) -> None:
    model = toy.build(width=32).to(dtype)
    with watch(model, wiring=toy.wiring(3)) as gauge:
        loss = toy.loss_of(model, toy.batch(0))
        loss.backward()
        gauge.step(loss)
    for name in ("stream_rms", "cosine", "token_cosine", "grad_rms", "retention", "grad_norm"):
        values = gauge.readings(name).values
        assert (values == values).all(), name
    assert gauge.readings("retention").values[0] == pytest.approx(1.0, abs=0.5)
    assert gauge.readings_so_far().facts["dtypes"] == [str(dtype).removeprefix("torch.")]


def test_autocast_is_watched(toy: SimpleNamespace) -> None:
    model = toy.build()
    with watch(model, wiring=toy.wiring(3)) as gauge:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = toy.loss_of(model, toy.batch(0))
        loss.backward()
        gauge.step(loss)
    assert gauge.readings("retention").values.shape == (1, 3)


def test_a_frozen_stream_has_no_gradient_to_read(toy: SimpleNamespace) -> None:
    model = toy.build()
    model.embed.requires_grad_(False)
    with watch(model, wiring=toy.wiring(3)) as gauge:
        loss = toy.loss_of(model, toy.batch(0))
        loss.backward()
        gauge.step(loss)
    retention = gauge.readings("retention").values[0]
    assert math.isnan(retention[0])
    assert (retention[1:] > 0).all()
    assert len(gauge.readings("retention_total")) == 0


def test_places_that_were_not_seen_are_named_once(toy: SimpleNamespace) -> None:
    model = toy.build()
    wiring = Wiring(joins=(*toy.wiring(3).joins, toy.join(3, "blocks.9"), toy.join(4, "x", stream_tap=None)))
    with warnings.catch_warnings(record=True) as caught, watch(model, every=1, wiring=wiring) as gauge:
        warnings.simplefilter("always")
        for step in range(3):
            loss = toy.loss_of(model, toy.batch(step))
            loss.backward()
            gauge.step(loss)
    assert [str(w.message) for w in caught if w.category is GaugeWarning] == [
        "streamgauge: 3 of 5 places were seen; missing 3:blocks.9, 4:x"
    ]
    assert len(gauge.readings_so_far().events("places")) == 1
    assert gauge.readings("stream_rms").values.shape == (3, 5)


def test_a_slot_that_is_not_there_is_a_place_not_seen(toy: SimpleNamespace) -> None:
    model = toy.build(depth=1)
    lost = Tap("blocks.0", "output", slot=5)
    wiring = Wiring(joins=(toy.join(0, "blocks.0", stream_tap=None, branch_tap=None, out_tap=lost),))
    gauge = watch(model, wiring=wiring)
    loss = toy.loss_of(model, toy.batch(0))
    loss.backward()
    with pytest.warns(GaugeWarning, match="0 of 1 places"):
        gauge.step(loss)


def test_a_model_whose_forward_is_never_called_is_reported(toy: SimpleNamespace) -> None:
    model = toy.build()
    with pytest.warns(GaugeWarning, match="did not run with gradients"), watch(model) as gauge:
        gauge.step(1.0, grad_norm=1.0)


def test_a_wiring_that_cannot_be_read_leaves_the_run_going(
    toy: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> Wiring:
        raise RuntimeError("no graph")

    monkeypatch.setattr("streamgauge.gauge.sampler.read_wiring", broken)
    model = toy.build()
    gauge = watch(model)
    with pytest.warns(GaugeWarning, match="could not be read .RuntimeError: no graph"):
        loss = toy.loss_of(model, toy.batch(0))
    loss.backward()
    gauge.step(loss)
    assert gauge.readings("loss").values[0, 0] == pytest.approx(loss.item())


def test_a_reading_that_fails_does_not_break_the_loop(toy: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("strange tensor")

    monkeypatch.setattr("streamgauge.gauge.passes.sample", broken)
    model = toy.build()
    with warnings.catch_warnings(record=True) as caught, watch(model, wiring=toy.wiring(3)) as gauge:
        warnings.simplefilter("always")
        loss = toy.loss_of(model, toy.batch(0))
        loss.backward()
        gauge.step(loss)
    messages = [str(w.message) for w in caught]
    assert sum("could not read a place: RuntimeError: strange tensor" in m for m in messages) == 1


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_blocks_read_like_others(toy: SimpleNamespace, reentrant: bool) -> None:
    class Saving(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = toy.build().eval()

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            x = self.inner.embed(ids)
            for block in self.inner.blocks:
                x = checkpoint(block, x, use_reentrant=reentrant)
            return self.inner.head(x)

    tables = []
    for model, root in ((toy.build().eval(), "blocks"), (Saving(), "inner.blocks")):
        joins = tuple(toy.join(k, f"{root}.{k}") for k in range(3))
        with watch(model, wiring=Wiring(joins=joins)) as gauge:
            loss = toy.loss_of(model, toy.batch(0))
            loss.backward()
            gauge.step(loss)
        tables.append({name: gauge.readings(name).values for name in PLACE})
    for name in PLACE:
        assert tables[1][name] == pytest.approx(tables[0][name], rel=1e-9), name


def test_a_shared_layer_is_read_at_each_of_its_calls(toy: SimpleNamespace) -> None:
    class Looped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = toy.build(depth=1).eval()

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            x = self.inner.embed(ids)
            for _ in range(3):
                x = self.inner.blocks(x)
            return self.inner.head(x)

    def call(k: int) -> dict[str, Tap]:
        path = "inner.blocks.0"
        return {
            "stream_tap": Tap(path, "input", call=k),
            "branch_tap": Tap(f"{path}.f", "output", call=k),
            "out_tap": Tap(path, "output", call=k),
        }

    model = Looped()
    x = model.inner.embed(toy.batch(0))
    expected = []
    for _ in range(3):
        x = model.inner.blocks(x)
        expected.append(x.square().mean().sqrt().item())
    wiring = Wiring(joins=tuple(toy.join(k, "inner.blocks.0", **call(k)) for k in range(3)))
    with watch(model, every=1, wiring=wiring) as gauge:
        for _ in range(2):
            loss = toy.loss_of(model, toy.batch(0))
            loss.backward()
            gauge.step(loss)
    for row in gauge.readings("stream_rms").values:
        assert row == pytest.approx(expected, rel=1e-6)
