"""The hooks on a script: made when the script imports torch, asked for what they saw when it ends."""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import warnings
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from streamgauge.gauge import Gauge, GaugeWarning
from streamgauge.gauge.target import original
from streamgauge.preflight.gather.optimizer import number
from streamgauge.preflight.objective import Inputs
from streamgauge.preflight.pace import START
from streamgauge.preflight.script.calls import Calls
from streamgauge.preflight.script.clipping import Clipping
from streamgauge.preflight.script.evidence import peaks, seen
from streamgauge.preflight.script.experiments import experiment
from streamgauge.preflight.script.fault import origin_of
from streamgauge.preflight.script.job import Ended, Job
from streamgauge.preflight.script.losses import Losses
from streamgauge.preflight.script.models import Roster, Watched
from streamgauge.preflight.script.optimizers import Optimizers, Schedulers, Track
from streamgauge.preflight.script.patches import Function, Patches
from streamgauge.preflight.script.plan import Plan
from streamgauge.preflight.script.stop import Stopped, close_the_door
from streamgauge.preflight.script.targets import SeenTargets
from streamgauge.preflight.script.writes import Writes

REHEARSED = 0.7
"""Share of the loss evaluations that go to the rehearsal; the rest is for what is measured beside it."""
EVERY = 4
"""Steps between two sampled ones in a rehearsal."""
PATIENCE = 12
"""Steps that a GradScaler may skip in a row before their gradients count as evidence."""

SAVED = ("vocab", "unigram_entropy", "causal_lm", "pretrained")
"""Facts that are stored with a run; the others are built of the live model."""

T = TypeVar("T")
Later = Callable[[str, Callable[[ModuleType], None]], None]


class Session:
    """Everything that watches one script, and the order in which it is told.

    root call: `_meet`, backward: `losses`, clipping: `_whole`, gradients complete: `_ready`, updated: `_done`.
    """

    def __init__(self, job: Job, later: Later) -> None:
        self.job, self.pid = job, os.getpid()
        self.check = job.mode == "check"
        self.ended = False
        self.dtype: torch.dtype | None = None
        self.compiled = self.clipped_scaled = False
        self.epoch: int | None = None
        self.failure = ""
        self.loaded: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._open, self._clip_scale = False, 1.0
        self._eager: Any = None
        warnings.filterwarnings("ignore", category=GaugeWarning)
        self.patches, counting = Patches(), Patches()
        self.losses = Losses(self.patches, self._backward_begins, self._backward_ends)
        self.targets = SeenTargets(counting)
        self._counting = counting
        self.clipping = Clipping(self.patches, self._whole)
        self.schedulers = Schedulers(self.patches)
        self.optimizers = Optimizers(self.patches, self._ready, self._done, lambda: self.losses.count)
        self.roster = Roster(lambda: self.optimizers.tracks, self._attach, one=not self.check)
        self.calls = Calls(self.patches, self._meet)
        self.plan = Plan(1 if job.wiring_only else max(1, int(job.budget * REHEARSED)), job.seconds)
        self.writes = Writes(later) if self.check and not job.allow_writes else None
        self.patches.wrap(torch.amp.autocast_mode.autocast, "__enter__", self._autocast)
        self.patches.after(nn.Module, "load_state_dict", lambda model, *args: self.loaded.add(model))
        self.patches.after(torch.utils.data.DataLoader, "__iter__", self._loading)
        self.patches.wrap(torch, "compile", self._compile)
        self.patches.wrap(nn.Module, "compile", self._compile)

    # -- what is seen --------------------------------------------------------------------------------------------

    def _meet(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        entry = self.roster.meet(module)
        if entry is not None:
            self._open = True
            inputs = Inputs(args, dict(kwargs))
            if entry.first is None:
                entry.first, self.targets.first = inputs, None  # the targets of these very inputs are wanted
            entry.inputs = inputs if self.check else None

    def _attach(self, model: nn.Module, optimizer: Optimizer) -> Gauge:
        if self.check:
            return Gauge(model, optimizer, every=EVERY)
        self.calls.closed = True
        self._stance(eager=False)
        config = {"script": self.job.script, "args": list(self.job.args)}
        return Gauge(model, optimizer, run=self.job.folder, every=self.job.every, config=config)

    def _loading(self, loader: Any) -> None:
        if not self._open and torch.is_grad_enabled():
            with contextlib.suppress(Exception):  # the length of an iterable data set
                self.epoch = len(loader)

    def _autocast(self, enter: Function, region: Any) -> Any:
        if region._enabled and torch.is_grad_enabled():
            self.dtype = region.fast_dtype
        return enter(region)

    def _compile(self, function: Function, *args: Any, **kwargs: Any) -> Any:
        self.compiled = True
        result = function(*args, **kwargs)
        if not self.calls.closed:
            self._stance(eager=True)
        return result

    def _stance(self, eager: bool) -> None:
        """Run compiled code eagerly: all through a rehearsal, and in a run until the model is found."""
        if eager and self._eager is None:
            self._eager = torch.compiler.set_stance("force_eager")
            self._eager.__enter__()
        elif not eager and self._eager is not None:
            self._eager.__exit__(None, None, None)
            self._eager = None

    def _backward_begins(self, loss: Tensor | None) -> None:
        self.calls.enter()
        if self.check and self._open and loss is not None and not bool(loss.isfinite()):
            self._fail(loss)

    def _backward_ends(self) -> None:
        self.calls.leave()

    def _whole(self) -> None:
        """Gradients are complete and not clipped yet."""
        scaler = self.losses.scaler
        if scaler is not None and scaler.is_enabled() and not self.optimizers.unscaled:
            self.clipped_scaled, self._clip_scale = True, float(scaler.get_scale())
            return
        for entry in self.roster.watched:
            if any(p.grad is not None for p in entry.own):
                entry.look()

    # -- steps ---------------------------------------------------------------------------------------------------

    def _ready(self, track: Track, loss: Tensor | None) -> None:
        optimizer = track.ref()
        if optimizer is None:
            return
        of_step = self.losses.of_step(track.since)
        loss = of_step if of_step is not None else loss
        track.note(self.losses.count - track.since, self.schedulers.of(optimizer))
        if self.check:
            self.plan.begin(track.accumulate or 1)
            self._set_rates(track, optimizer)
        elif self.compiled:
            self._counting.undo()  # what is compiled from now on shall not trace through it
        for entry in self.roster.of(track):
            entry.look()
            norm = self._close(entry, loss)
            if self.check and norm is not None and not math.isfinite(norm):
                self._trace(entry)
                self.failure = f"the gradient norm is {norm}"
                self._stop()
            if self.check and entry.steps == 1 and not self.job.wiring_only:
                self._undisturbed(partial(experiment, entry, self.targets, self.dtype))
        self.clipping.close()
        self._clip_scale = 1.0
        self.roster.settle(track)

    def _set_rates(self, track: Track, optimizer: Optimizer) -> None:
        waits = bool(track.ticks) and track.ticks[-1][1] == 0
        if track.begun is None and track.steps >= START and not waits:
            track.begun = track.steps
        high = peaks(self, track)
        if self.plan.raise_rates(optimizer, high, track.steps, track.begun):
            track.raised.append(track.steps)
        now = [number(group.get("lr")) for group in optimizer.param_groups]
        known = [(lr, peak) for lr, peak in zip(now, high, strict=False) if lr is not None and peak is not None]
        if track.peak_from is None and known and all(lr >= 0.999 * peak for lr, peak in known):
            track.peak_from = track.steps

    def _close(self, entry: Watched, loss: Tensor | None) -> float | None:
        """End a step of a model's gauge; its gradient norm, where the rehearsal reads it at once."""
        norm = self.clipping.norm_over(entry.own)
        norm = None if norm is None else norm / self._clip_scale
        entry.step(loss, norm)
        self._open = False
        if not self.check:
            return None
        norms = entry.gauge.readings("grad_norm").values
        return float(norms[-1, 0]) if norms.size else None

    def _fail(self, loss: Tensor) -> None:
        """The rehearsal ends at a loss that is not finite, before its backward pass."""
        entry = self.roster.judged
        if entry is None or entry.inputs is None:
            return
        self._trace(entry)
        self._close(entry, loss)
        self.failure = f"the loss is {float(loss)}"
        self._stop()

    def _trace(self, entry: Watched) -> None:
        if entry.inputs is not None and entry.origin is None:
            given = entry.inputs, self.targets.again, self.dtype, max(0, self.losses.count - 1)
            entry.origin = self._undisturbed(lambda: origin_of(original(entry.model), *given))

    def _undisturbed(self, look: Callable[[], T]) -> T:
        """Run the model beside the script: none of the hooks takes it for a step of theirs."""
        self.calls.enter()
        self.losses.quiet = True
        try:
            return look()
        finally:
            self.losses.quiet = False
            self.calls.leave()

    def _done(self, track: Track) -> None:
        if self.check:
            self.plan.lower_rates()
            if track.skipped > PATIENCE and track.steps == 0:
                for entry in self.roster.of(track):
                    self._trace(entry)
                    self._close(entry, self.losses.of_step(track.since - 1))
            if self.plan.over(track.steps + track.skipped):
                self._stop()

    # -- the end -------------------------------------------------------------------------------------------------

    def _stop(self) -> None:
        self.answer(None, "rehearsed")
        close_the_door(Patches())
        raise Stopped("the rehearsal is over")

    def answer(self, error: BaseException | None, how: Ended | None = None) -> None:
        """Write what was seen, once: at the end of the rehearsal, of the script, or at its exception."""
        if self.ended or os.getpid() != self.pid:
            return
        self.ended = True
        self.optimizers.remove()
        self.patches.undo()
        self._counting.undo()
        self._stance(eager=False)
        self._last_words(error)
        found = seen(self, how or ("finished" if error is None else "raised"), error)
        for entry in self.roster.watched:
            if not self.check:
                entry.gauge.note(**{name: found.facts[name] for name in SAVED if name in found.facts})
            entry.gauge.close(error)
        draft = Path(f"{self.job.answer}.part")
        draft.write_bytes(pickle.dumps(found))
        draft.replace(self.job.answer)

    def let_go(self) -> None:
        """Take back what outlasts the answer: checkpoints can be written again."""
        if self.writes is not None:
            self.writes.allow()

    def _last_words(self, error: BaseException | None) -> None:
        """A step that was begun and not closed counts where the script ended by an exception."""
        entry = self.roster.judged
        if error is None or (isinstance(error, KeyboardInterrupt | SystemExit) and not getattr(error, "code", 0)):
            return
        if entry is not None and self._open:
            loss = self.losses.of_step(entry.track.since)
            if loss is None and self.targets.last is not None and not bool(self.targets.last.isfinite().all()):
                loss = self.targets.last
                self._trace(entry)
            if loss is not None:
                self._close(entry, loss)
