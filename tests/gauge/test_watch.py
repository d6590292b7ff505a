"""The gauge in a training loop."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from streamgauge.errors import InputError
from streamgauge.gauge import Gauge, GaugeWarning, load_run, watch


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


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("no more data")])
def test_an_exception_takes_the_hooks_off_and_closes_the_store(
    toy: SimpleNamespace, tmp_path: Path, error: BaseException
) -> None:
    model = toy.build()
    optimizer = toy.adam(model)

    def stop(step: int) -> None:
        if step == 3:
            raise error

    with pytest.raises(type(error)), watch(model, optimizer, run=tmp_path / "run", every=1, wiring=toy.wiring(3)) as g:
        toy.train(model, optimizer, 9, g, each=stop)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    stored = load_run(tmp_path / "run")
    assert stored.status == "interrupted"
    assert stored.events("exception")[0].detail == {"type": type(error).__name__, "message": str(error)}
    assert stored.readings("loss").steps.tolist() == [0, 1, 2, 3]


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


def test_a_step_without_gradients_is_reported(toy: SimpleNamespace) -> None:
    model = toy.build()
    with pytest.warns(GaugeWarning, match="call step after backward"), watch(model, wiring=toy.wiring(3)) as gauge:
        gauge.step(toy.loss_of(model, toy.batch(0)))


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
