"""Everything that training steps change, put back bit for bit."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from streamgauge.preflight.held import Held
from streamgauge.preflight.reach import Reach


@dataclass
class State:
    """What is held, and `notes`: one line for each thing that will not be as before.

    schedulers   the learning-rate schedulers that the user's functions can step (in an optimizer hook, in the loss)
    """

    schedulers: list[LRScheduler] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@contextmanager
def preserved(
    model: nn.Module,
    optimizer: Optimizer | None = None,
    *,
    schedule: Any = None,
    scaler: Any = None,
    functions: Iterable[Any] = (),
    batches: Any = None,
    objects: Iterable[Any] = (),
) -> Iterator[State]:
    """Inside, training steps may be taken; afterwards, by whatever way it is left, all is as it was, bit for bit.

    Put back: parameters and buffers (the same tensors in the same storage), `.grad` (None stays None, and the tensors
    that were there are not written to), requires_grad, attributes and modes of modules, the optimizer's state and
    groups (empty before, empty after), the schedule's and the scaler's state, the random states of Python, NumPy,
    torch and the accelerator, and what `functions` (the loss, hooks of the optimizer) keep in their closures, in
    globals they name and in the user's own objects. `objects` are put back attribute by attribute.

    Inside, every `.grad` starts as None. Not put back, and named in `notes`: iterators and files, and what lies
    behind objects of foreign classes. Memory: one clone of the parameters, buffers and optimizer state.
    """
    held, state = Held(), State()
    reach = Reach(held)
    for module in model.modules():
        held.take(module)
    if optimizer is not None:
        held.take(optimizer)
    for thing in (schedule, scaler, getattr(schedule, "scheduler", None), getattr(optimizer, "optimizer", None)):
        if thing is not None and hasattr(thing, "__dict__") and not callable(thing):
            held.attributes(thing)
    for thing in objects:
        held.attributes(thing)
    reach.into([*functions, *_hooks(optimizer), *_generators(batches)])
    state.schedulers = list(reach.schedulers)
    reach.into([schedule] if schedule is not None else [])
    state.notes += [f"{thing} that the loss can reach is not put back" for thing in dict.fromkeys(reach.unsteady)]
    random_states = _random_states()
    _forget_gradients(model, optimizer)
    try:
        yield state
    finally:
        held.restore()
        for put, value in random_states:
            put(value)
        state.notes += dict.fromkeys(held.notes)


def _hooks(optimizer: Optimizer | None) -> list[Any]:
    kinds = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
    return [hook for kind in kinds for hook in getattr(optimizer, kind, {}).values()]


def _generators(batches: Any) -> list[Any]:
    """Random generators and user's objects behind a data loader."""
    inner = getattr(batches, "batch_sampler", None)
    parts = [batches, getattr(batches, "sampler", None), inner, getattr(inner, "sampler", None)]
    found = [getattr(part, "generator", None) for part in parts]
    return [part for part in (*found, getattr(batches, "dataset", None), *parts[1:]) if part is not None]


def _forget_gradients(model: nn.Module, optimizer: Optimizer | None) -> None:
    groups = [] if optimizer is None else [p for group in optimizer.param_groups for p in group["params"]]
    for parameter in (*model.parameters(), *groups):
        parameter.grad = None


def _random_states() -> list[tuple[Any, Any]]:
    states: list[tuple[Any, Any]] = [
        (random.setstate, random.getstate()),
        (np.random.set_state, np.random.get_state()),
        (torch.set_rng_state, torch.get_rng_state()),
    ]
    if torch.cuda.is_available():
        states.append((torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))
    if torch.backends.mps.is_available():
        states.append((torch.mps.set_rng_state, torch.mps.get_rng_state()))
    return states
