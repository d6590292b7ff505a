"""Real training steps in place: what the first steps, and the steps at the peak learning rate, do to the loss."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from streamgauge.errors import InputError
from streamgauge.gauge import Gauge, GaugeWarning
from streamgauge.gauge.signals import grad_norm
from streamgauge.preflight import gather
from streamgauge.preflight.budget import Budget, Feed
from streamgauge.preflight.origin import trace_origin
from streamgauge.preflight.pace import Pace
from streamgauge.vocabulary import Origin, Parameter, Readings, Wiring

LEAST = 16
"""Steps that the default wall-clock cap does not cut: fewer say nothing. A cap that is asked for is kept."""
EVERY = 3
"""Steps between two steps at which the gauge looks inside the model; loss and gradient norm are read at each."""
COUNTED = 16
"""Steps whose targets are counted."""
CLEAR = 8
"""Losses in a row that have to lie beyond the margin before a rising loss ends the rehearsal."""


@dataclass(frozen=True)
class Handled:
    """How a step is made: gradient clipping by global norm, batches in a step, autocast dtype, loss scaler."""

    clip: float | None = None
    accumulate: int = 1
    precision: torch.dtype | None = None
    scaler: torch.amp.GradScaler | None = None


@dataclass(frozen=True)
class Rehearsed:
    """What was seen.

    readings     signal -> Readings; step 0 is the model at initialization, before any update
    parameters   with the gradients of step 0
    taken        optimizer steps
    peak_from    step from which the rate was the peak's, None where it was not reached
    stopped      why it ended before its planned length, "" where it did not
    failure      error text where the loss was no number at a step: its step and batch
    origin       the operation that made the first value that is not finite
    autocast     dtype of the autocast region that the model's forward ran in
    """

    readings: Mapping[str, Readings]
    parameters: tuple[Parameter, ...]
    taken: int
    peak_from: int | None
    stopped: str = ""
    failure: str = ""
    origin: Origin | None = None
    autocast: torch.dtype | None = None
    notes: tuple[str, ...] = ()


def steps_within(budget: Budget, accumulate: int, reserve: int) -> int:
    """Optimizer steps that the budget allows with `reserve` evaluations kept back; at least one."""
    return max(1, (budget.left - reserve) // accumulate)


def rehearse(
    model: nn.Module,
    wiring: Wiring,
    budget: Budget,
    feed: Feed,
    optimizer: Optimizer,
    pace: Pace,
    handled: Handled,
    targets: gather.Targets,
) -> Rehearsed:
    """Take `pace.steps` optimizer steps, fewer where the answer is clear, the batches end or the time is over.

    Each step: `accumulate` losses, their mean differentiated, unscaled, read by a gauge, clipped, stepped, scheduled.
    It stops at a loss or gradient that is not finite (with the operation traced: one more evaluation), at a loss
    whose last `CLEAR` values all lie above the first by more than its size, and at `budget.seconds`. The caller holds
    the state (`state.preserved`): nothing is put back here.
    """
    seen: list[torch.dtype | None] = []
    door = model.register_forward_pre_hook(lambda *_: seen.append(gather.autocast_now()) if not seen else None)
    gauge = Gauge(model, optimizer, every=EVERY, wiring=wiring)
    run = _Run(model, budget, feed, optimizer, pace, handled, targets, gauge)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GaugeWarning)
            run.all_steps()
        stored = gauge.readings_so_far()
        readings = {name: stored.readings(name) for name in stored.signals}
    finally:
        door.remove()
        gauge.close()
    return Rehearsed(
        readings,
        run.parameters or gather.parameters(model),  # a first loss that is no number has no gradient
        run.taken,
        pace.peak_from,
        run.stopped,
        run.failure,
        run.origin,
        seen[0] if seen else None,
        tuple(run.notes),
    )


@dataclass
class _Run:
    model: nn.Module
    budget: Budget
    feed: Feed
    optimizer: Optimizer
    pace: Pace
    handled: Handled
    targets: gather.Targets
    gauge: Gauge
    taken: int = 0
    stopped: str = ""
    failure: str = ""
    origin: Origin | None = None
    parameters: tuple[Parameter, ...] = ()

    def __post_init__(self) -> None:
        self.notes: list[str] = []
        self.losses: list[float] = []

    def all_steps(self) -> None:
        for step in range(self.pace.steps):
            batches = self._draw(step)
            if len(batches) < self.handled.accumulate:
                self.stopped = f"the batches ended after {self.taken} steps"
                self.notes.append(f"{self.stopped}: pass more, or a list, which can be read again")
                return
            self.pace.before(step)
            if not self._step(step, batches):
                return
            if self.budget.over_time and (self.budget.asked or self.taken >= LEAST):
                self.stopped = f"the time was over after {self.taken} steps ({self.budget.elapsed:.0f} s)"
                self.notes.append(self.stopped)
                return

    def _draw(self, step: int) -> list[Any]:
        batches = []
        for _ in range(self.handled.accumulate):
            try:
                batches.append(next(self.feed))
            except StopIteration:
                break
        return batches

    def _step(self, step: int, batches: Sequence[Any]) -> bool:
        """One optimizer step; False where the rehearsal is over."""
        for parameter in self._all_parameters():
            parameter.grad = None
        total: Tensor | None = None
        for index, batch in enumerate(batches):
            before = torch.get_rng_state()
            value = self._loss(batch)
            if not _finite(value):
                self.gauge.step(value)
                self._fail(step, index, batch, before, f"the loss is {float(value.detach())}")
                return False
            self._backward(value / len(batches) if len(batches) > 1 else value)
            total = value.detach() if total is None else total + value.detach()
        assert total is not None
        scaler = self.handled.scaler
        if scaler is not None:
            scaler.unscale_(self.optimizer)
        norm = grad_norm(p.grad for p in self._all_parameters() if p.grad is not None)
        if not step:
            self.parameters = gather.parameters(self.model)
        self.gauge.step(total / len(batches), grad_norm=norm)
        if norm is not None and not _finite(norm) and scaler is None:
            self._fail(step, len(batches) - 1, batches[-1], None, f"the gradient norm is {float(norm)}")
            return False
        self._update(norm)
        self.losses.append(float(total) / len(batches))
        return not self._clear()

    def _loss(self, batch: Any) -> Tensor:
        watched = self.targets if self.taken < COUNTED else contextlib.nullcontext()
        with torch.enable_grad(), self._autocast(), watched:
            return scalar(self.budget(batch))

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self.handled.precision is None:
            return contextlib.nullcontext()
        return torch.autocast(_device(self.model), dtype=self.handled.precision)

    def _backward(self, value: Tensor) -> None:
        if not value.requires_grad:
            raise InputError("the loss does not depend on any trainable parameter; compute it from the model's output")
        if self.handled.scaler is not None:
            value = self.handled.scaler.scale(value)
        value.backward()  # type: ignore[no-untyped-call]

    def _update(self, norm: Tensor | None) -> None:
        if self.handled.clip is not None and norm is not None:
            torch.nn.utils.clip_grad_norm_(self._all_parameters(), self.handled.clip)
        if self.handled.scaler is not None:
            self.handled.scaler.step(self.optimizer)
            self.handled.scaler.update()
        else:
            self.optimizer.step()
        self.taken += 1
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*lr_scheduler.step.*")
            self.pace.after()

    def _all_parameters(self) -> list[nn.Parameter]:
        grouped = [p for group in self.optimizer.param_groups for p in group["params"]]
        return list({id(p): p for p in (*self.model.parameters(), *grouped)}.values())

    def _fail(self, step: int, index: int, batch: Any, before: Tensor | None, what: str) -> None:
        number = step * self.handled.accumulate + index
        self.failure = f"{what} at step {step}, batch {number}"
        self.stopped = self.failure
        if self.budget.left < 1:
            return
        if before is not None:
            torch.set_rng_state(before)
        with contextlib.suppress(Exception):  # the trace runs foreign code under a recorder: a fault in it is no news
            self.origin = trace_origin(self.model, lambda: self._loss(batch), step=number)

    def _clear(self) -> bool:
        first = self.losses[0]
        recent = self.losses[-CLEAR:]
        if len(self.losses) > 2 * CLEAR and min(recent) > first + max(1.0, abs(first)):
            self.stopped = f"the loss rose from {first:.3g} to {recent[-1]:.3g} nats in {self.taken} steps"
            return True
        return False


def scalar(value: object) -> Tensor:
    """The loss, a tensor of one number; InputError for anything else."""
    if not isinstance(value, Tensor) or value.numel() != 1:
        got = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise InputError(f"the loss function returned {got}; it must return a tensor of one number")
    return value.reshape(())


def _finite(value: Tensor) -> bool:
    return bool(torch.isfinite(value.detach()).all())


def _device(model: nn.Module) -> str:
    return next((p.device.type for p in model.parameters()), "cpu")


@contextlib.contextmanager
def eager(model: nn.Module) -> Iterator[None]:
    """Inside, compiled code runs eagerly: a rehearsal is too short to pay for a compilation."""
    from streamgauge.gauge.target import is_compiled

    if not is_compiled(model):
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield
