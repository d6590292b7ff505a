"""The learning rate of each rehearsal step: the start of the schedule as it is, then the peak."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from streamgauge.preflight import gather
from streamgauge.preflight.gather.optimizer import number
from streamgauge.vocabulary import Schedule

START = 8
"""Steps at the start of a schedule before the rate is taken to its peak."""


@dataclass
class Pace:
    """Rates of a rehearsal of `steps` optimizer steps.

    Without a schedule every step is at the peak. With one, `START` steps follow it; then the rate rises linearly to
    the peak over half of what is left (none where it is there already), and stays: a warm-up in fast motion, which is
    gentler than a jump and harder than the real one. A scheduler that the user's own hooks step is left to them, and
    followed to the end if it has not ticked by then.

    scheduler   the scheduler that was given or found; `own` is false where the user's hooks step it
    peaks       per parameter group, the highest rate ahead
    """

    optimizer: Optimizer
    steps: int
    peaks: tuple[float, ...]
    scheduler: Any = None
    planned: Callable[[int], float] | None = None
    own: bool = True
    peak_from: int | None = None
    ticks: int = 0
    _ramp: tuple[int, tuple[float, ...]] | None = None
    _epoch: int = field(default=-1)

    def __post_init__(self) -> None:
        self._epoch = getattr(self.scheduler, "last_epoch", 0)

    @property
    def flat(self) -> bool:
        """Is the rate at its peak from the first step on?"""
        return self.scheduler is None and self.planned is None

    def before(self, step: int) -> None:
        """Set the rates of this step."""
        if self.flat:
            set_rates(self.optimizer, self.peaks)
            self.peak_from = 0
            return
        if self.planned is not None:
            set_rates(self.optimizer, [peak * self.planned(step) for peak in self.peaks])
        waits = not self.own and self.ticks == 0
        if step < START or (waits and self._ramp is None):
            return
        if self._ramp is None:
            self._ramp = (step, rates_now(self.optimizer))
        begun, base = self._ramp
        length = (self.steps - begun) // 2 if any(b < 0.9 * p for b, p in zip(base, self.peaks, strict=True)) else 0
        share = min(1.0, (step - begun + 1) / length) if length else 1.0
        if share >= 1.0 and self.peak_from is None:
            self.peak_from = step
        set_rates(self.optimizer, [b + share * (p - b) for b, p in zip(base, self.peaks, strict=True)])

    def after(self) -> None:
        """Let the scheduler tick, or see whether the user's hooks did."""
        if self.scheduler is None:
            return
        if self.own:
            if not isinstance(self.scheduler, ReduceLROnPlateau):
                self.scheduler.step()
                self.ticks += 1
        else:
            now = getattr(self.scheduler, "last_epoch", 0)
            self.ticks += now != self._epoch
            self._epoch = now

    def seen(self, taken: int) -> float | None:
        """Optimizer steps to a tick, where the user's hooks step the scheduler; `taken` where none was seen in all."""
        return None if self.own or self.scheduler is None or not taken else taken / max(1, self.ticks)


def rates_now(optimizer: Optimizer) -> tuple[float, ...]:
    return tuple(number(group["lr"]) or 0.0 for group in optimizer.param_groups)


def set_rates(optimizer: Optimizer, rates: Sequence[float]) -> None:
    """Set the rate of each group, in place where it is a tensor."""
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def scheduler_of(optimizer: Optimizer) -> LRScheduler | None:
    """The scheduler that was built on this optimizer and is still alive; None without one, or with several."""
    wanted = [o for o in gc.get_referrers(optimizer) if issubclass(type(o), LRScheduler)]
    held = [o for o in gc.get_referrers(optimizer) if isinstance(o, dict) and o.get("optimizer") is optimizer]
    wanted += [o for d in held for o in gc.get_referrers(d) if issubclass(type(o), LRScheduler)]
    unique = {id(o): o for o in wanted}
    nested = {id(inner) for o in unique.values() for inner in getattr(o, "_schedulers", ())}
    outer = [o for key, o in unique.items() if key not in nested]
    return outer[0] if len(outer) == 1 else None


def paced(
    optimizer: Optimizer,
    steps: int,
    *,
    lr: float | None = None,
    warmup: int | None = None,
    total: int | None = None,
    schedule: Any = None,
    hooked: Sequence[LRScheduler] = (),
) -> tuple[Pace, Schedule, list[str]]:
    """The pace of a rehearsal, what is known of the schedule, and notes.

    lr        the peak rate; by default the highest that the schedule will reach, `initial_lr`, or the rate now
    schedule  a scheduler (ticks at every step), or a function step -> multiplier of the peak
    hooked    schedulers that hooks of the optimizer, or the loss, hold and step by themselves
    """
    notes: list[str] = []
    own = True
    planned: Callable[[int], float] | None = None
    scheduler = getattr(schedule, "scheduler", schedule)
    if scheduler is None and warmup is None:
        scheduler = next((s for s in hooked if s.optimizer is optimizer), None) or scheduler_of(optimizer)
        if scheduler is not None and not any(s is scheduler for s in hooked):
            notes.append(f"a {type(scheduler).__name__} belongs to the optimizer: it ticks at every step here")
    if scheduler is not None and not isinstance(scheduler, LRScheduler):
        planned, scheduler = _function(scheduler), None
    if scheduler is not None:
        own = not any(s is scheduler for s in hooked)
    ahead = gather.rates(scheduler, total or gather.TICKS) if scheduler is not None else None
    known = gather.schedule(scheduler or planned, warmup=warmup, steps=total, rates_ahead=ahead)
    if scheduler is None and planned is None and known.planned:
        shares = known.planned
        planned = lambda t: shares[min(t, len(shares) - 1)]  # noqa: E731
    highest = gather.peaks(ahead)
    base = tuple(number(g.get("initial_lr")) or now for g, now in zip(optimizer.param_groups, rates_now(optimizer)))  # noqa: B905
    peaks = highest or base
    if lr is not None and max(peaks) > 0:
        peaks = tuple(peak * lr / max(peaks) for peak in peaks)
    return Pace(optimizer, steps, peaks, scheduler, planned, own), known, notes


def _function(schedule: Callable[[int], float]) -> Callable[[int], float]:
    """A schedule given as a function, scaled to its peak."""
    (curve,) = gather.rates(schedule) or ((1.0,),)
    highest = max(curve) or 1.0
    return lambda t: float(schedule(t)) / highest
