"""Bad values are refused at the door with one line, and what was stored stays as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from streamgauge.errors import InputError
from streamgauge.gauge import Gauge, Store, load_run, watch

LOOP: dict[str, Callable[[Gauge], object]] = {
    "event, surrogate kind": lambda g: g.event("\udcff", {}),
    "event, surrogate detail": lambda g: g.event("k", "\udcff"),
    "event, surrogate key": lambda g: g.event("k", {"\udcff": 1}),
    "event, kind None": lambda g: g.event(None, {}),  # type: ignore[arg-type]
    "event, huge step": lambda g: g.event("k", {}, 10**30),
    "event, huge integer": lambda g: g.event("k", 10**5000),
    "record, name None": lambda g: g.record(None, 1.0),  # type: ignore[arg-type]
    "record, surrogate name": lambda g: g.record("\udcff", 1.0),
    "record, huge step": lambda g: g.record("x", 1.0, 10**30),
    "record, text step": lambda g: g.record("x", 1.0, "s"),  # type: ignore[arg-type]
    "record, negative step": lambda g: g.record("x", 1.0, -1),
    "record, half step": lambda g: g.record("x", 1.0, 1.5),  # type: ignore[arg-type]
    "record, text": lambda g: g.record("x", "1"),  # type: ignore[arg-type]
    "record, None": lambda g: g.record("x", None),  # type: ignore[arg-type]
    "record, two numbers": lambda g: g.record("x", torch.ones(2)),  # type: ignore[arg-type]
    "record, huge": lambda g: g.record("x", 10**400),
    "record, unit": lambda g: g.record("x", 1.0, unit=None),  # type: ignore[arg-type]
    "note, object": lambda g: g.note(a=object()),
    "note, tokens": lambda g: g.note(tokens_per_step=float("nan")),
    "step, None": lambda g: g.step(None),  # type: ignore[arg-type]
    "step, two numbers": lambda g: g.step(np.array([1.0, 2.0])),  # type: ignore[arg-type]
    "step, two in a tensor": lambda g: g.step(torch.ones(2)),
    "step, text": lambda g: g.step("1.0"),  # type: ignore[arg-type]
    "step, complex": lambda g: g.step(torch.ones((), dtype=torch.complex64)),
    "step, grad_norm": lambda g: g.step(1.0, grad_norm=torch.ones(2)),
    "step, grad_norm text": lambda g: g.step(1.0, grad_norm="big"),  # type: ignore[arg-type]
    "step, tokens": lambda g: g.step(1.0, tokens=-3),
    "step, tokens nan": lambda g: g.step(1.0, tokens=float("nan")),  # type: ignore[arg-type]
}


def one_line(error: pytest.ExceptionInfo[InputError]) -> None:
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 250


@pytest.mark.parametrize("call", LOOP.values(), ids=LOOP.keys())
def test_a_bad_value_is_refused_and_the_run_goes_on(
    toy: SimpleNamespace, tmp_path: Path, call: Callable[[Gauge], object]
) -> None:
    model = toy.build()
    optimizer = toy.adam(model)
    with watch(model, optimizer, run=tmp_path / "run", every=2, wiring=toy.wiring(3), facts={"a": 1}) as gauge:
        toy.train(model, optimizer, 2, gauge)
        events, signals = gauge.readings_so_far().events(), gauge.readings_so_far().signals
        with pytest.raises(InputError) as error:
            call(gauge)
        one_line(error)
        assert (gauge.readings_so_far().events(), gauge.readings_so_far().signals) == (events, signals)
        assert len(gauge.readings("loss")) == 2
        gauge.note(b=2)
        toy.train(model, optimizer, 2, gauge, first=2)
    stored = load_run(tmp_path / "run")
    assert stored.status == "finished"
    assert stored.readings("loss").steps.tolist() == [0, 1, 2, 3]
    assert {name: stored.facts[name] for name in ("a", "b")} == {"a": 1, "b": 2}


OPENING: list[dict[str, Any]] = [
    {"optimizer": "adam"},
    *({"start": start} for start in ("x", -1, 1.5, 10**30, True)),
    {"facts": [1]},
    {"facts": {"tokens_per_step": float("nan")}},
    {"facts": {"tokens_per_step": "many"}},
    {"facts": {1: 2}},
    {"run": "a\0b"},
    {"run": "n" * 300},
    {"run": 5},
    {"config": {"a": "\udcff"}},
]


@pytest.mark.parametrize("bad", OPENING, ids=lambda bad: repr(bad)[:40])
def test_a_gauge_with_bad_arguments_is_not_opened(
    toy: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = toy.build()
    with pytest.raises(InputError) as error:
        watch(model, **({"run": "run", "wiring": toy.wiring(3)} | bad))
    one_line(error)
    assert list(tmp_path.iterdir()) == []
    assert not model._forward_pre_hooks


@pytest.mark.filterwarnings("ignore:streamgauge")
def test_numbers_of_any_library_are_taken(toy: SimpleNamespace) -> None:
    with watch(toy.build(), every=5, start=np.int64(1), wiring=toy.wiring(3)) as gauge:
        for loss in (1, 2.0, np.float32(3), np.array([4.0]), torch.tensor([5.0])):
            gauge.step(loss, grad_norm=np.float64(1), tokens=np.int64(8))  # type: ignore[arg-type]
        gauge.record("mine", torch.tensor(7), np.int32(2))  # type: ignore[arg-type]
    assert gauge.readings("loss").values[:, 0].tolist() == [1, 2, 3, 4, 5]
    assert gauge.readings("mine").steps.tolist() == [2]


@pytest.mark.filterwarnings("ignore:streamgauge")
def test_a_closed_gauge_takes_nothing_and_puts_no_hook_back(toy: SimpleNamespace, tmp_path: Path) -> None:
    model = toy.build()
    gauge = watch(model, run=tmp_path / "run", every=1, wiring=toy.wiring(3))
    gauge.step(1.0, grad_norm=1.0)
    gauge.close()
    for call in (lambda: gauge.step(2.0), lambda: gauge.record("loss", 2.0), lambda: gauge.event("k", 1)):
        with pytest.raises(InputError, match="is closed; open it with mode='append'"):
            call()
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert load_run(tmp_path / "run").readings("loss").values.tolist() == [[1.0]]


@pytest.mark.filterwarnings("ignore:streamgauge")
@pytest.mark.parametrize("mode", ["append", "replace"])
def test_one_gauge_per_folder(toy: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Any) -> None:
    monkeypatch.chdir(tmp_path)
    first = watch(toy.build(), run=tmp_path / "run", wiring=toy.wiring(3))
    first.step(1.0, grad_norm=1.0)
    with pytest.raises(InputError, match="another gauge of this process; close that one first"):
        watch(toy.build(), run="run", wiring=toy.wiring(3), mode=mode)
    first.step(2.0, grad_norm=1.0)
    first.close()
    assert len(load_run("run").readings("loss")) == 2
    watch(toy.build(), run="run", wiring=toy.wiring(3), mode=mode).close()


def test_a_row_that_cannot_be_stored_is_dropped_with_one_warning(tmp_path: Path) -> None:
    store = Store(tmp_path / "run")
    store.declare("loss", "nat", "run")
    store.add([(0, "loss", -1, 1.0), (2**70, "loss", -1, 2.0), (2, "loss", -1, 3.0), (2**71, "loss", -1, 4.0)])
    with pytest.warns(UserWarning, match="cannot store a row") as warned:
        store.flush()
    assert len(warned) == 1
    assert not store.connection.in_transaction
    store.add([(3, "loss", -1, 5.0)])
    store.close()
    stored = load_run(tmp_path / "run")
    assert stored.readings("loss").values[:, 0].tolist() == [1.0, 3.0, 5.0]
    assert stored.status == "finished"
