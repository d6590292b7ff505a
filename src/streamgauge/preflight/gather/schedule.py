"""The learning rate over time, read ahead from a copy of the scheduler."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, ReduceLROnPlateau

from streamgauge.preflight.gather.optimizer import number
from streamgauge.vocabulary import Schedule

TICKS = 4000
"""Ticks read ahead where the length of the run is not known; warm-ups are shorter."""

Rates = tuple[tuple[float, ...], ...]


def schedule(
    scheduler: Any = None,
    *,
    warmup: int | None = None,
    steps: int | None = None,
    steps_per_tick: float | None = None,
    rates_ahead: Rates | None = None,
) -> Schedule:
    """What is known of the learning rate over time; the name is None where nothing is.

    scheduler      a torch LRScheduler, a function tick -> multiplier of the base rate, or None
    warmup, steps  optimizer steps of warm-up and of the run, as told by the user; they win over what is read
    rates_ahead    `rates(scheduler)`, where the caller has it already

    With `warmup` and no scheduler: min(1, (t + 1) / warmup), linear to the peak and constant from there.
    warmup_steps counts ticks until the highest rate: optimizer steps if the scheduler ticks at every step.
    """
    if scheduler is None:
        if warmup is None:
            return Schedule(None, None, steps, steps_per_tick)
        planned = tuple(min(1.0, (t + 1) / warmup) for t in range(min(steps or warmup + 1, TICKS))) if warmup else ()
        return Schedule("given", warmup, steps, steps_per_tick, planned)
    if rates_ahead is None:
        rates_ahead = rates(scheduler, steps or TICKS)
    inner = getattr(scheduler, "scheduler", scheduler)
    name = type(inner).__name__ if isinstance(inner, LRScheduler) else "given"
    total = steps or _total(inner)
    if not rates_ahead:
        return Schedule(name, warmup, total, steps_per_tick)
    curve = max(rates_ahead, key=max)  # the group with the highest peak stands for all
    peak = max(curve)
    if not peak > 0:
        return Schedule(name, warmup, total, steps_per_tick)
    planned = tuple(rate / peak for rate in curve)
    rise = next(t for t, share in enumerate(planned) if share >= 1 - 1e-6)
    return Schedule(name, warmup if warmup is not None else rise, total, steps_per_tick, planned)


def peaks(rates_ahead: Rates | None) -> tuple[float, ...] | None:
    """Per parameter group, the highest rate ahead."""
    return tuple(max(curve) for curve in rates_ahead) if rates_ahead else None


def rates(scheduler: Any, ticks: int = TICKS) -> Rates | None:
    """Learning rates at ticks 0, 1, 2 ... from the start, one tuple per parameter group; None where not readable.

    The functions of a LambdaLR are evaluated; any other scheduler is copied, rewound to its first tick where it has a
    closed form, and stepped on an optimizer of empty groups: the user's scheduler and optimizer are not touched.
    ReduceLROnPlateau follows the loss and cannot be read ahead.
    """
    scheduler = getattr(scheduler, "scheduler", scheduler)
    ticks = max(1, min(ticks, TICKS))
    try:
        if isinstance(scheduler, LambdaLR):
            return tuple(
                tuple(float(number(base) or 0.0) * float(factor(t)) for t in range(ticks))
                for base, factor in zip(scheduler.base_lrs, scheduler.lr_lambdas, strict=True)
            )
        if isinstance(scheduler, LRScheduler) and not isinstance(scheduler, ReduceLROnPlateau):
            return _simulated(scheduler, ticks)
        if callable(scheduler):
            return (tuple(float(scheduler(t)) for t in range(ticks)),)
    except Exception:  # a scheduler that needs more than a tick to answer: epochs, metrics, its own run
        return None
    return None


class _Groups(torch.optim.Optimizer):
    """An optimizer with the groups of another and none of its parameters."""

    def __init__(self, groups: Sequence[dict[str, Any]]) -> None:
        bare = [{k: copy.copy(v) for k, v in g.items() if k != "params"} for g in groups]
        super().__init__([{**g, "params": [torch.nn.Parameter(torch.zeros(()))]} for g in bare], {})

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        self._opt_called = True


def _simulated(scheduler: LRScheduler, ticks: int) -> Rates:
    stand_in = _Groups(scheduler.optimizer.param_groups)
    for group, base in zip(stand_in.param_groups, _bases(scheduler), strict=True):
        group["lr"] = group["initial_lr"] = base
    ahead = _copied(scheduler, stand_in)
    seen: list[list[float]] = [[float(g["lr"])] for g in stand_in.param_groups]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stand_in.step()
        for tick in range(ticks):
            if tick == 0:
                _rewind(ahead, stand_in, scheduler)
            else:
                try:
                    ahead.step()
                except ValueError:  # OneCycleLR refuses to go on after its last step
                    break
            for curve, group in zip(seen, stand_in.param_groups, strict=True):
                curve[tick:] = [float(group["lr"])]
    return tuple(tuple(curve) for curve in seen)


def _bases(scheduler: LRScheduler) -> list[float]:
    bases = getattr(scheduler, "base_lrs", None) or [
        g.get("initial_lr", g["lr"]) for g in scheduler.optimizer.param_groups
    ]
    return [float(base) for base in bases]


def _copied(scheduler: LRScheduler, optimizer: torch.optim.Optimizer) -> LRScheduler:
    twin = copy.copy(scheduler)
    for name, value in vars(scheduler).items():
        if name == "optimizer":
            twin.optimizer = optimizer
        elif isinstance(value, list | tuple) and any(isinstance(v, LRScheduler) for v in value):
            setattr(twin, name, [_copied(v, optimizer) for v in value])
        elif isinstance(value, list | dict):
            setattr(twin, name, copy.copy(value))
    return twin


def _rewind(twin: LRScheduler, optimizer: torch.optim.Optimizer, scheduler: LRScheduler) -> None:
    """Put the twin at its first tick if it can be computed from the tick alone; else leave it where it is."""
    if getattr(scheduler, "last_epoch", 1) <= 0:
        for group, now in zip(optimizer.param_groups, scheduler.optimizer.param_groups, strict=True):
            group["lr"] = float(now["lr"])
        return
    if hasattr(twin, "_get_closed_form_lr"):
        twin.last_epoch = 0
        for group, rate in zip(optimizer.param_groups, twin._get_closed_form_lr(), strict=True):
            group["lr"] = float(rate)
    else:
        for group, now in zip(optimizer.param_groups, scheduler.optimizer.param_groups, strict=True):
            group["lr"] = float(now["lr"])


def _total(scheduler: Any) -> int | None:
    for name in ("total_steps", "T_max", "total_iters"):
        value = getattr(scheduler, name, None)
        if isinstance(value, int) and not isinstance(value, bool) and name == "total_steps":
            return value
    return None
