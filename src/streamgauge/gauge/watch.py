"""The gauge: attaches to a training loop, samples every so many steps, and writes what it sees."""

from __future__ import annotations

import sqlite3
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn

from streamgauge.errors import InputError
from streamgauge.gauge import given, signals
from streamgauge.gauge.about import model_facts, optimizer_facts, versions
from streamgauge.gauge.alarm import WATCHED, Alarms, first_non_finite
from streamgauge.gauge.ledger import Ledger
from streamgauge.gauge.plain import plain
from streamgauge.gauge.recorder import GaugeWarning
from streamgauge.gauge.sampler import Sampler
from streamgauge.gauge.schema import FILE, reading
from streamgauge.gauge.signals import SIGNALS
from streamgauge.gauge.store import Mode, Store
from streamgauge.gauge.stored import StoredRun, load_run
from streamgauge.gauge.target import require_module
from streamgauge.vocabulary import Place, Readings, Wiring

FLUSH_EVERY = 1.0
FLUSH_SHARE = 0.01


class Gauge:
    """Watch a training run.

        with Gauge(model, optimizer, run="runs/name", every=50) as gauge:
            for batch in data:
                loss = model(batch).loss
                loss.backward()
                gauge.step(loss)
                optimizer.step()
                optimizer.zero_grad()

    Steps 0, every, 2 every, ... are sampled, and the step after an alarm (loss or gradient norm not finite, or a jump).
    On a sampled step hooks stand at the taps of the wiring from the first training forward until `step`; at any other
    time the model carries none. Loss, learning rate, gradient norm and time are kept at every step.

    run       folder of the store; None keeps the readings in memory
    wiring    where to measure; None reads it at the first training forward of the model
    facts     what the rules should know beyond the readings (unigram entropy of the data, tokens_per_step ...)
    config    what the run was started with; stored beside the readings
    mode      "new" | "append" | "replace": what to do with a folder that already holds a run
    start     index of the first step; by default 0, after "append" the one that follows the last stored. Readings of
              `start` and later are dropped, so that a run resumed from a checkpoint overlays its first attempt

    Training is not changed: no random number is drawn, nothing is written to a tensor of the model, losses with and
    without are equal bit for bit (a compiled model runs eagerly on sampled steps, which may round differently).
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        run: str | Path | None = None,
        every: int = 50,
        wiring: Wiring | None = None,
        facts: Mapping[str, Any] | None = None,
        config: Any = None,
        mode: Mode = "new",
        start: int | None = None,
    ) -> None:
        self.model = require_module(model)
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise InputError(f"every={every!r} is not a number of steps; give an integer of at least 1")
        self.optimizer, self.every = given.optimizer(optimizer), every
        run, facts = given.folder(run), given.facts(facts)
        start = None if start is None else given.step_number(start, "start")
        self.wiring: Wiring | None = None
        earlier = load_run(run) if run is not None and mode == "append" and (Path(run) / FILE).exists() else None
        self.facts = {**model_facts(model), **optimizer_facts(optimizer), **(earlier.facts if earlier else {})}
        self.facts = plain({**self.facts, **facts}, "facts")
        config = plain(config, "config")
        wiring = _agreed(wiring, earlier)
        self.store = Store(run, mode=mode)
        self.steps = self.store.next_step() if start is None else start
        self.store.forget_from(self.steps)
        for key, value in (("facts", self.facts), ("versions", versions()), ("every", every)):
            self.store.put(key, value)
        if config is not None:
            self.store.put("config", config)
        self._ledger, self._alarms = Ledger(), Alarms()
        self._parameters = list(model.parameters())
        self._said: set[str] = set()
        self._tokens: float | None = None
        self._clock: float | None = None
        self._flushed, self._pause = 0.0, 0.0
        self._sampler = Sampler(model, wiring, self._adopt, self._say)
        if self.steps % every == 0:
            self._sampler.arm()
        self.store.flush()

    def _adopt(self, wiring: Wiring) -> None:
        self.wiring = wiring
        self.store.put("wiring", wiring)
        self.store.place(Place(join.index, join.path, join.kind) for join in wiring.places)
        self.event("wiring", {"read": str(wiring)})

    # -- one step ------------------------------------------------------------------------------------------------

    def step(self, loss: Tensor | float, *, grad_norm: Tensor | float | None = None, tokens: int | None = None) -> None:
        """Close a step: call it after the backward, before clipping, `optimizer.step` and `zero_grad`.

        loss        the step's loss, one number
        grad_norm   the l2 norm before clipping, where the loop has it (`clip_grad_norm_` returns it); else computed
        tokens      tokens of this step; by default `facts["tokens_per_step"]`, else counted on the last sampled step
        """
        began = time.perf_counter()
        self.store.require_open()
        value = signals.loss(loss)
        grad_norm = None if grad_norm is None else given.scalar(grad_norm, "step: grad_norm")
        count = None if tokens is None else given.tokens(tokens, "tokens")
        self._put("loss", value)
        if self.optimizer is not None and self.optimizer.param_groups:
            self._put("lr", signals.lr(self.optimizer.param_groups))
        if grad_norm is None:
            grad_norm = signals.grad_norm(p.grad for p in self._parameters if p.grad is not None)
        if grad_norm is not None:
            self._put("grad_norm", grad_norm)
        else:
            self._say("gradients", "no parameter holds a gradient: call step after backward and before zero_grad")
        if sampled := self._sampler.armed:
            self._parameters = list(self.model.parameters())  # walking a deep model takes as long as its norm
            measured, counted = self._sampler.collect()
            self._tokens = counted or self._tokens
            for signal, place, value in measured:
                self._put(signal, value, place)
        self._time(began, count)
        again = self._settle(sampled)
        self.steps += 1
        if again or self.steps % self.every == 0:
            self._sampler.arm()

    def _time(self, began: float, tokens: float | None) -> None:
        if self._clock is not None:
            seconds = signals.step_time(began - self._clock)
            self._put("step_time", seconds)
            tokens = tokens if tokens is not None else self.facts.get("tokens_per_step", self._tokens)
            if tokens is not None and seconds > 0:
                self._put("tokens_per_s", signals.tokens_per_s(tokens, seconds))
        self._clock = began

    def _put(self, signal: str, value: float | Tensor, place: int = -1) -> None:
        known = SIGNALS[signal]
        self.store.declare(signal, known.unit, known.level)
        self._ledger.put(self.steps, signal, place, value)

    def _settle(self, force: bool) -> bool:
        """Fetch what waits on the device, write it, and answer whether the next step should be sampled."""
        due = force or time.monotonic() - self._flushed >= self._pause
        if not (due or self._ledger.on_host):
            return False
        rows = self._ledger.settle()
        self.store.add(rows)
        alarmed = False
        for step, signal, place, value in rows:
            if place < 0 and signal in WATCHED and (alarm := self._alarms.check(step, signal, value)):
                self.store.event(step, "alarm", alarm)
                alarmed = True
        if detail := first_non_finite(rows):
            self.store.event(detail.pop("step"), "non-finite", detail)
        if due or alarmed:
            self._flush()
        return alarmed

    def _flush(self) -> None:
        began = time.monotonic()
        self.store.flush()
        self._flushed = time.monotonic()
        self._pause = min(FLUSH_EVERY, (self._flushed - began) / FLUSH_SHARE) if self._ledger.on_host else FLUSH_EVERY

    # -- what else can be written, and read ----------------------------------------------------------------------

    def record(self, signal: str, value: float, step: int | None = None, *, unit: str = "1") -> None:
        """Enter one number for the whole run, `val_loss` or any of your own; by default at the step just closed."""
        known = SIGNALS.get(signal) if isinstance(signal, str) else None
        if known is not None and known.level == "place":
            raise InputError(f"{signal} is measured per place by the gauge; record takes numbers of the whole run")
        signal, number = given.text(signal, "the signal's name"), given.number(value, f"{signal}")
        step = max(self.steps - 1, 0) if step is None else given.step_number(step)
        self.store.declare(signal, known.unit if known else given.text(unit, "unit"), "run")
        self.store.add([(step, signal, -1, number)])
        self.store.flush()

    def event(self, kind: str, detail: Any, step: int | None = None) -> None:
        """Enter something that happened, with any detail that has a form in JSON."""
        self.store.event(self.steps if step is None else given.step_number(step), given.text(kind, "kind"), detail)

    def note(self, **facts: Any) -> None:
        """Add facts for the rules while the run goes."""
        known = plain({**self.facts, **given.facts(facts)}, "facts")
        self.store.put("facts", known)
        self.facts = known

    def readings_so_far(self) -> StoredRun:
        """The run so far, to be read like a stored one."""
        return StoredRun(self.store.folder, self._connect)

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        if self.store.closed and self.store.folder is not None:
            with reading(self.store.folder / FILE) as connection:
                yield connection
        else:
            self.store.flush()
            yield self.store.connection

    def readings(self, signal: str) -> Readings:
        """All readings of one signal so far."""
        return self.readings_so_far().readings(signal)

    def close(self, error: BaseException | None = None) -> None:
        """Take every hook off and close the store: finished, or interrupted by `error`. Closing twice is harmless."""
        self._sampler.disarm()
        if self.store.closed:
            return
        self._settle(force=True)
        if error is not None:
            self.event("exception", {"type": type(error).__name__, "message": str(error)})
        self.store.close("finished" if error is None else "interrupted")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(error)

    def _say(self, kind: str, message: str) -> None:
        if message not in self._said:
            self.event(kind, {"message": message})
        if kind not in self._said:
            warnings.warn(f"streamgauge: {message}", GaugeWarning, stacklevel=4)
        self._said |= {kind, message}


def _agreed(wiring: Wiring | None, earlier: StoredRun | None) -> Wiring | None:
    """The wiring to measure by: the one given, else that of the run that goes on; both must list the same places."""
    before = earlier.wiring if earlier else None
    if wiring is None or before is None:
        return wiring or before
    if len(wiring.places) != len(before.places):
        counts = f"{len(before.places)} places, this model {len(wiring.places)}"
        raise InputError(f"{earlier.path if earlier else ''} has {counts}; give another folder, or mode='replace'")
    return wiring


def watch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    run: str | Path | None = None,
    every: int = 50,
    wiring: Wiring | None = None,
    facts: Mapping[str, Any] | None = None,
    config: Any = None,
    mode: Mode = "new",
    start: int | None = None,
) -> Gauge:
    """`with watch(model, optimizer, run="runs/name") as gauge:` - a Gauge, closed at the end of the block."""
    return Gauge(
        model, optimizer, run=run, every=every, wiring=wiring, facts=facts, config=config, mode=mode, start=start
    )
