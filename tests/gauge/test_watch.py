"""The gauge in a training loop."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from streamgauge.errors import InputError
from streamgauge.gauge import Gauge, GaugeWarning, load_run, watch
from streamgauge.vocabulary import Tap, Wiring


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


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("read", [False, True])
def test_watching_does_not_change_training(toy: SimpleNamespace, tmp_path: Path, in_place: bool, read: bool) -> None:
    plain = toy.build(in_place=in_place)
    optimizer = toy.adam(plain)
    torch.manual_seed(7)
    losses = toy.train(plain, optimizer, 20)
    state = torch.get_rng_state()

    watched = toy.build(in_place=in_place)
    optimizer = toy.adam(watched)
    torch.manual_seed(7)
    with watch(watched, optimizer, run=tmp_path / "run", every=3, wiring=None if read else toy.wiring(3)) as gauge:
        assert toy.train(watched, optimizer, 20, gauge) == losses
    assert len(gauge.readings("stream_rms")) == 7
    assert torch.equal(torch.get_rng_state(), state)
    for a, b in zip(plain.parameters(), watched.parameters(), strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a.grad, b.grad)


def test_in_place_additions_read_like_others(toy: SimpleNamespace) -> None:
    tables = []
    for in_place in (False, True):
        model = toy.build(in_place=in_place)
        optimizer = toy.adam(model)
        with watch(model, optimizer, wiring=toy.wiring(3)) as gauge:
            torch.manual_seed(1)
            toy.train(model, optimizer, 1, gauge)
        tables.append({name: gauge.readings(name).values for name in gauge.readings_so_far().signals})
    for name in ("stream_rms", "branch_ratio", "cosine", "cosine_excess", "token_cosine", "grad_rms", "retention"):
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


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("no more data")])
def test_an_exception_takes_the_hooks_off_and_closes_the_store(
    toy: SimpleNamespace, tmp_path: Path, error: BaseException
) -> None:
    model = toy.build()
    before = hooks(model)
    optimizer = toy.adam(model)

    def stop(step: int) -> None:
        if step == 3:
            raise error

    with pytest.raises(type(error)), watch(model, optimizer, run=tmp_path / "run", every=1, wiring=toy.wiring(3)) as g:
        toy.train(model, optimizer, 9, g, each=stop)
    assert hooks(model) == before
    stored = load_run(tmp_path / "run")
    assert stored.status == "interrupted"
    assert stored.events("exception")[0].detail == {"type": type(error).__name__, "message": str(error)}
    assert stored.readings("loss").steps.tolist() == [0, 1, 2, 3]


def test_an_exception_in_the_forward_pass_does_so_too(toy: SimpleNamespace) -> None:
    model = toy.build()
    with pytest.raises(IndexError), watch(model, toy.adam(model), wiring=toy.wiring(3)) as gauge:
        gauge.step(toy.loss_of(model, torch.tensor([[99]])))
    assert hooks(model) == {}


def test_what_is_recorded_at_every_step_is_what_the_loop_saw(toy: SimpleNamespace) -> None:
    model = toy.build()
    optimizer = toy.adam(model)
    rates, norms = [], []
    with watch(model, optimizer, every=4, wiring=toy.wiring(3)) as gauge:
        for step in range(6):
            optimizer.param_groups[0]["lr"] = 0.01 * (step + 1)
            loss = toy.loss_of(model, toy.batch(step))
            optimizer.zero_grad()
            loss.backward()
            gauge.step(loss)
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.01).item())
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
    assert gauge.readings("lr").values[:, 0].tolist() == rates
    assert gauge.readings("grad_norm").values[:, 0] == pytest.approx(norms, rel=1e-5)
    assert gauge.readings("stream_rms").steps.tolist() == [0, 4]
    assert (gauge.readings("step_time").values > 0).all()
    rate = gauge.readings("tokens_per_s").values * gauge.readings("step_time").values
    assert rate == pytest.approx(24, rel=1e-9)


def test_a_norm_and_tokens_given_are_taken(toy: SimpleNamespace) -> None:
    model = toy.build()
    with watch(model, wiring=toy.wiring(3)) as gauge:
        model(toy.batch(0))
        for _ in range(2):
            gauge.step(1.0, grad_norm=torch.tensor(7.0), tokens=600)
    assert gauge.readings("grad_norm").values.tolist() == [[7.0], [7.0]]
    assert (gauge.readings("tokens_per_s").values * gauge.readings("step_time").values)[0, 0] == pytest.approx(600)
    assert len(gauge.readings("lr")) == 0


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


def test_the_step_after_an_alarm_is_sampled(toy: SimpleNamespace) -> None:
    model = toy.build()
    with watch(model, every=1000, wiring=toy.wiring(3)) as gauge:
        for step in range(14):
            loss = toy.loss_of(model, toy.batch(step))
            loss.backward()
            gauge.step(100.0 if step == 10 else 2.0, grad_norm=1.0)
    assert gauge.readings("stream_rms").steps.tolist() == [0, 11]
    (alarm,) = gauge.readings_so_far().events("alarm")
    assert alarm.step == 10
    assert alarm.detail["signal"] == "loss"
    assert alarm.detail["value"] == 100.0


def test_the_first_place_that_is_not_finite_is_named(toy: SimpleNamespace) -> None:
    model = toy.build()
    with torch.no_grad():
        model.blocks[1].f.bias[0] = math.inf
    with watch(model, wiring=toy.wiring(3)) as gauge:
        loss = toy.loss_of(model, toy.batch(0))
        loss.backward()
        gauge.step(loss)
    (event,) = gauge.readings_so_far().events("non-finite")
    assert event.step == 0
    assert event.detail["place"] == 1
    assert event.detail["flow"] == "forward"
    rms = gauge.readings("stream_rms").values[0]
    assert math.isfinite(rms[0])
    assert not math.isfinite(rms[1])
    assert {r.place for r in gauge.readings_so_far().non_finite() if r.signal == "stream_rms"} == {1, 2}


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


def test_a_step_without_gradients_is_reported(toy: SimpleNamespace) -> None:
    model = toy.build()
    with pytest.warns(GaugeWarning, match="call step after backward"), watch(model, wiring=toy.wiring(3)) as gauge:
        gauge.step(toy.loss_of(model, toy.batch(0)))


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


def test_own_numbers_events_and_facts(toy: SimpleNamespace) -> None:
    model = toy.build()
    with watch(model, wiring=toy.wiring(3), facts={"vocab": 11}) as gauge:
        model(toy.batch(0))
        for _ in range(3):
            gauge.step(1.0, grad_norm=1.0)
        gauge.record("val_loss", 2.0)
        gauge.record("bleu", 31.5, 0, unit="%")
        gauge.event("restart", {"why": "test"})
        gauge.note(unigram_entropy=2.2)
        with pytest.raises(InputError, match="stream_rms is measured per place"):
            gauge.record("stream_rms", 1.0)
    stored = gauge.readings_so_far()
    assert stored.readings("val_loss").steps.tolist() == [2]
    assert stored.readings("bleu").values.tolist() == [[31.5]]
    assert stored.signals["bleu"] == "%"
    assert stored.events("restart")[0].step == 3
    assert stored.facts["vocab"] == 11
    assert stored.facts["unigram_entropy"] == 2.2


def test_a_resumed_run_overlays_its_first_attempt(toy: SimpleNamespace, tmp_path: Path) -> None:
    model = toy.build()
    optimizer = toy.adam(model)
    with watch(model, optimizer, run=tmp_path / "run", every=5, wiring=toy.wiring(3)) as gauge:
        toy.train(model, optimizer, 8, gauge)
        gauge.event("late", {}, 7)
    with watch(model, optimizer, run=tmp_path / "run", every=5, mode="append", start=6) as gauge:
        assert gauge.wiring == toy.wiring(3)
        assert toy.train(model, optimizer, 5, gauge, first=6)
        assert gauge.steps == 11
    stored = load_run(tmp_path / "run")
    assert stored.readings("loss").steps.tolist() == list(range(11))
    assert stored.readings("stream_rms").steps.tolist() == [0, 5, 10]
    assert stored.events("late") == []
    with watch(model, optimizer, run=tmp_path / "run", mode="append") as gauge:
        assert gauge.steps == 11
    with pytest.raises(InputError, match="has 3 places, this model 2; give another folder, or mode='replace'"):
        watch(model, run=tmp_path / "run", wiring=toy.wiring(2), mode="append")
    assert load_run(tmp_path / "run").status == "finished"


@pytest.mark.parametrize("every", [0, -5, 2.5, True, "10"])
def test_every_is_a_number_of_steps(toy: SimpleNamespace, every: object) -> None:
    with pytest.raises(InputError, match="give an integer of at least 1"):
        Gauge(toy.build(), every=every)  # type: ignore[arg-type]


def test_a_config_that_cannot_be_stored_writes_nothing(toy: SimpleNamespace, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"config\.net has type Toy, which JSON cannot hold"):
        Gauge(toy.build(), run=tmp_path / "run", config={"net": toy.build()})
    assert not (tmp_path / "run").exists()


def test_the_model_is_a_module() -> None:
    with pytest.raises(InputError, match="this is a function; pass the model itself"):
        Gauge(lambda x: x)  # type: ignore[arg-type]
