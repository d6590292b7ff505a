"""Optimizers and schedulers that the script makes, and every step they take."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from statistics import mode
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer, lr_scheduler
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from streamgauge.preflight.gather.optimizer import number, unwrapped
from streamgauge.preflight.script.patches import Function, Patches

REMEMBERED = 1000

Ready = Callable[["Track", Tensor | None], None]


class Track:
    """One optimizer: steps it took, steps a GradScaler skipped, and the backward pass its gradients start from.

    rates    learning rate of each group when the optimizer was made
    begun, peak_from   step of a rehearsal from which the rate rises to its peak, and from which it is there
    planned  (identity of the scheduler, the highest rate that it will give to each group), once read
    counts   backward passes of each step; lrs, ticks: the script's own rate, and (step, steps of its scheduler)
    settled, adopted   how often its unwatched models were looked at, and whether a caller of theirs was taken
    raised   steps at which a rehearsal set a higher rate than the script
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.ref = weakref.ref(optimizer)
        self.steps = self.skipped = self.since = 0
        self.settled = 0
        self.adopted: bool | None = None
        self.rates = [number(group.get("lr")) for group in optimizer.param_groups]
        self.planned: tuple[int | None, tuple[float, ...] | None] | None = None
        self.begun: int | None = None
        self.peak_from: int | None = None
        self.counts: list[int] = []
        self.lrs: list[float] = []
        self.ticks: list[tuple[int, int]] = []
        self.raised: list[int] = []

    @property
    def parameters(self) -> list[Tensor]:
        optimizer = self.ref()
        return [] if optimizer is None else [p for g in optimizer.param_groups for p in g["params"]]

    @property
    def accumulate(self) -> int | None:
        """Backward passes of the usual step."""
        return mode(self.counts) if self.counts else None

    def note(self, backwards: int, scheduler: tuple[Any, int] | None) -> None:
        """Enter what a step is made with, before its update; only the last REMEMBERED steps are kept."""
        optimizer = self.ref()
        if backwards:
            self.counts.append(backwards)
        if optimizer is not None and optimizer.param_groups:
            self.lrs.append(number(optimizer.param_groups[0].get("lr")) or 0.0)
        if scheduler is not None:
            self.ticks.append((self.steps, scheduler[1]))
        for kept in (self.counts, self.lrs, self.ticks):
            del kept[:-REMEMBERED]

    def sizes(self) -> dict[int, int]:
        """id -> number of elements of its parameters."""
        return {id(p): p.numel() for p in self.parameters}


class Optimizers:
    """Tells `ready` when the gradients of a step are complete and the update is next, `done` when it has been made.

    A step that is given a closure is ready when the closure has first returned; of optimizers that step inside one
    another the outer one counts.
    """

    def __init__(self, patches: Patches, ready: Ready, done: Callable[[Track], None], now: Callable[[], int]) -> None:
        self._ready, self._done, self._now = ready, done, now
        self._pid = os.getpid()
        self._tracks: dict[int, Track] = {}
        self._stepping: int | None = None
        self.unscaled = False
        patches.after(Optimizer, "__init__", self._made)
        patches.after(Optimizer, "zero_grad", self._zeroed)
        patches.after(nn.Module, "zero_grad", self._model_zeroed)
        patches.wrap(torch.amp.GradScaler, "step", self._scaler_step)
        patches.after(torch.amp.GradScaler, "unscale_", self._unscaled)
        self._handles = [
            register_optimizer_step_pre_hook(self._before),
            register_optimizer_step_post_hook(self._after),
        ]

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def track(self, optimizer: Optimizer) -> Track:
        found = self._tracks.get(id(optimizer))
        if found is None or found.ref() is not optimizer:
            found = self._tracks[id(optimizer)] = Track(optimizer)
            found.since = self._now() if self._stepping is None else found.since
        return found

    @property
    def tracks(self) -> list[Track]:
        """All optimizers alive, in the order in which they were made."""
        return [track for track in self._tracks.values() if track.ref() is not None]

    def _made(self, optimizer: Optimizer, *args: Any) -> None:
        self.track(optimizer)

    def _zeroed(self, optimizer: Optimizer, *args: Any) -> None:
        if id(optimizer) in self._tracks:
            track = self.track(optimizer)
            track.since = self._now()

    def _model_zeroed(self, model: nn.Module, *args: Any) -> None:
        names = {id(p) for p in model.parameters()}
        for track in self.tracks:
            if any(id(p) in names for p in track.parameters):
                track.since = self._now()

    # -- steps ---------------------------------------------------------------------------------------------------

    def _before(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if os.getpid() != self._pid or self._stepping not in (None, id(optimizer)):
            return None
        self._stepping = id(optimizer)
        track = self.track(optimizer)
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if not callable(closure):
            self._ready(track, None)
            return None
        waiting = [track]

        def evaluated(*given: Any, **named: Any) -> Any:
            loss = closure(*given, **named)
            if waiting:
                self._ready(waiting.pop(), loss if isinstance(loss, Tensor) and loss.numel() == 1 else None)
            return loss

        if len(args) > 1:
            return (args[0], evaluated, *args[2:]), kwargs
        return args, {**kwargs, "closure": evaluated}

    def _after(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if os.getpid() != self._pid or self._stepping != id(optimizer):
            return
        self._stepping = None
        track = self.track(optimizer)
        track.steps += 1
        track.since = self._now()
        self.unscaled = False
        self._done(track)

    def _unscaled(self, scaler: Any, *args: Any) -> None:
        self.unscaled = True

    def _scaler_step(self, original: Function, scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        inner = getattr(optimizer, "optimizer", optimizer)
        if not isinstance(inner, Optimizer):
            return original(scaler, optimizer, *args, **kwargs)
        track = self.track(inner)
        before = track.steps
        result = original(scaler, optimizer, *args, **kwargs)
        if track.steps == before:
            track.skipped += 1
            track.since = self._now()
            self.unscaled = False
            self._done(track)
        return result


class Schedulers:
    """The learning-rate schedulers alive, and how often each was stepped since it was made."""

    def __init__(self, patches: Patches) -> None:
        self._made: list[tuple[weakref.ref[Any], int]] = []
        for kind in (
            lr_scheduler.LRScheduler,
            lr_scheduler.SequentialLR,
            lr_scheduler.ChainedScheduler,
            lr_scheduler.ReduceLROnPlateau,
        ):
            patches.after(kind, "__init__", self._note)

    def _note(self, scheduler: Any, *args: Any) -> None:
        if all(ref() is not scheduler for ref, _ in self._made):
            self._made.append((weakref.ref(scheduler), _tick(scheduler)))

    def of(self, optimizer: Optimizer) -> tuple[Any, int] | None:
        """(The scheduler of an optimizer, its steps so far): the last made of those that no other one holds."""
        alive = [(ref(), start) for ref, start in self._made]
        held = {id(part) for s, _ in alive for part in getattr(s, "_schedulers", ())}
        mine = [(s, start) for s, start in alive if _stepped_by(s) is optimizer and id(s) not in held]
        if not mine:
            return None
        scheduler, start = mine[-1]
        return scheduler, max(0, _tick(scheduler) - start)


def _stepped_by(scheduler: Any) -> Optimizer | None:
    optimizer = getattr(scheduler, "optimizer", None)
    return unwrapped(optimizer) if optimizer is not None else None


def _tick(scheduler: Any) -> int:
    parts = getattr(scheduler, "_schedulers", None)
    tick = getattr(scheduler, "last_epoch", None)
    if tick is None and parts:
        tick = getattr(parts[0], "last_epoch", 0)
    return int(tick or 0)
