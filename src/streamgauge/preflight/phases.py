"""The phases of a check, cheapest first: first pass, rehearsal, experiments; each leaves everything as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from streamgauge.errors import InputError
from streamgauge.gauge.undisturbed import undisturbed
from streamgauge.preflight import gather, probes
from streamgauge.preflight.budget import Budget, Feed, OverBudgetError
from streamgauge.preflight.gather.task import ALIKE
from streamgauge.preflight.objective import Inputs, inputs_of
from streamgauge.preflight.pace import paced, scheduler_of
from streamgauge.preflight.rehearsal import Handled, Rehearsed, eager, rehearse, steps_within
from streamgauge.preflight.state import preserved
from streamgauge.vocabulary import Join, Probe, Readings, Schedule, Wiring
from streamgauge.wiring import read_wiring, tensors_of

DEFAULT_LR = 1e-3
"""Rate of the AdamW that stands in where no optimizer is given: torch's default."""
SKIPS = 4
"""Sublayers that are left out one at a time: those that do least."""
RESERVE = SKIPS + 3
"""Evaluations kept for experiments after the rehearsal: base, repetition, skips, and one trace."""
QUIET = 0.05
"""A branch that writes less than this over its stream is worth leaving out, to see whether it matters."""

TARGET_NAMES = ("labels", "label", "targets", "target", "decoder_labels", "start_positions", "end_positions")


@dataclass
class Seen:
    """What the phases found; facts under the names that rules ask for."""

    model: nn.Module
    wiring: Wiring
    given: Inputs
    readings: dict[str, Readings] = field(default_factory=dict)
    facts: dict[str, object] = field(default_factory=dict)
    rehearsed: Rehearsed | None = None
    schedule: Schedule | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Options:
    """How the run will be trained, as far as the user says so; see `check`."""

    lr: float | None = None
    warmup: int | None = None
    steps: int | None = None
    clip: float | None = None
    accumulate: int = 1
    schedule: Any = None
    precision: torch.dtype | None = None

    def __post_init__(self) -> None:
        for name, low in (("lr", 0.0), ("clip", 0.0)):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and value > low):
                raise InputError(f"{name}={value!r}: give a positive number")
        for name, least in (("warmup", 0), ("steps", 1), ("accumulate", 1)):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise InputError(f"{name}={value!r}: give a whole number of at least {least}")


def train_phase(
    model: nn.Module,
    budget: Budget,
    batches: Iterable[Any] | None,
    optimizer: Optimizer | None,
    options: Options,
    objects: Iterable[Any] = (),
) -> tuple[Seen, Feed, gather.Targets]:
    """Wiring from the first batch, then the rehearsal; everything put back."""
    notes: list[str] = []
    given_optimizer = optimizer is not None
    optimizer = gather.unwrapped(optimizer) if optimizer is not None else _stand_in(model, options, notes)
    scaler = None
    if options.precision == torch.float16:
        scaler = torch.amp.GradScaler(next((p.device.type for p in model.parameters()), "cpu"))
    targets = gather.Targets()
    found = scheduler_of(optimizer)
    held = preserved(
        model,
        optimizer,
        schedule=options.schedule,
        functions=[budget.loss],
        batches=batches,
        objects=[*objects, *([found] if found is not None else [])],
    )
    with held as state, eager(model):
        feed = Feed(batches)
        given = inputs_of(model, budget, feed.first)
        wiring = read_wiring(model, *given.args, **given.kwargs)
        seen = Seen(model, wiring, given, notes=[*notes, *wiring.notes])
        accumulate = min(options.accumulate, max(1, budget.left))
        if accumulate < options.accumulate:
            seen.notes.append(f"the budget allows {accumulate} batches in a step, not {options.accumulate}")
        steps = steps_within(budget, accumulate, RESERVE)
        pace, seen.schedule, said = paced(
            optimizer,
            1 if _needs_closure(optimizer) else steps,
            lr=options.lr,
            warmup=options.warmup,
            total=options.steps,
            schedule=options.schedule,
            hooked=state.schedulers,
        )
        seen.notes += said
        setup = gather.setup(optimizer, model, peaks=pace.peaks)
        handled = Handled(options.clip, accumulate, options.precision, scaler)
        rehearsed = rehearse(model, wiring, budget, feed, optimizer, pace, handled, targets)
        per_tick = pace.seen(rehearsed.taken)
    if _needs_closure(optimizer):
        seen.notes.append(f"{type(optimizer).__name__}.step needs a closure: only the first pass was rehearsed")
    if per_tick is not None and not pace.ticks:
        seen.notes.append(f"the scheduler did not tick in {rehearsed.taken} steps: one tick takes at least as many")
    seen.schedule = _with_pace(seen.schedule, per_tick)
    seen.notes += [*rehearsed.notes, *feed.notes, *state.notes]
    seen.rehearsed, seen.readings = rehearsed, dict(rehearsed.readings)
    autocast = options.precision or rehearsed.autocast
    seen.facts = {
        "phase": "rehearsal" if rehearsed.taken else "init",
        "parameters": rehearsed.parameters or gather.parameters(model, {}),
        "setup": setup if given_optimizer else None,
        "optimizer": type(optimizer).__name__ if given_optimizer else None,
        "schedule": seen.schedule if given_optimizer or seen.schedule.name else None,
        "handling": gather.handling(
            clip=options.clip, accumulate=options.accumulate, precision=autocast, scaler=scaler
        ),
        "origin": rehearsed.origin,
        "peak_from": rehearsed.peak_from,
        "vocab": targets.vocab,
        "unigram_entropy": targets.unigram_entropy,
    }
    return seen, feed, targets


def probe_phase(
    model: nn.Module,
    seen: Seen,
    budget: Budget | None = None,
    feed: Feed | None = None,
    targets: gather.Targets | None = None,
) -> None:
    """Experiments at the weights as they are; enters `probes`, `causal_lm` and `copied_targets`."""
    fed = {name: value for name, value in seen.given.kwargs.items() if name not in TARGET_NAMES}
    inputs = [t for t in tensors_of((seen.given.args, fed)) if not t.is_meta]
    ids = [t for t in inputs if not t.is_floating_point() and t.dim() == 2 and t.shape[1] > 1]
    causal = targets.shifted_from(ids) if targets is not None and targets.vocab is not None else None
    if targets is not None and targets.vocab is not None:
        seen.facts["causal_lm"] = causal is not None
        seen.facts["copied_targets"] = targets.copied_from(ids)
    main = causal if causal is not None else next((t for t in ids if torch.unique(t).numel() > 2), None)
    experiments: list[Callable[[], Probe | None]] = []
    copied = seen.facts.get("copied_targets")
    if causal is not None:
        experiments.append(lambda: probes.future(model, seen.given, causal))
    elif main is not None and isinstance(copied, float) and copied > ALIKE:
        experiments.append(lambda: _if_blind(probes.future(model, seen.given, main)))
    if main is not None:
        experiments.append(lambda: probes.padding(model, seen.given, main))
    source = main if main is not None else next((t for t in inputs if t.is_floating_point()), None)
    if source is not None:
        experiments.append(lambda: probes.sensitivity(model, seen.given, source))
    found: list[Probe] = []
    functions = [budget.loss] if budget is not None else []
    with preserved(model, functions=functions), eager(model):
        for experiment in experiments:
            try:
                probe = experiment()
            except Exception as error:  # a model that refuses another input is no fault of the model
                seen.notes.append(f"an experiment was refused: {type(error).__name__}: {str(error).splitlines()[:1]}")
                continue
            found += [probe] if probe is not None else []
        found += _skips(model, seen, budget, feed)
    seen.facts["probes"] = tuple(found) if found else None


def initial_parameters(model: nn.Module, loss: Callable[[], Tensor]) -> dict[str, object]:
    """The facts of one backward pass that adds to no `.grad`."""
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    with undisturbed(model), torch.enable_grad(), eager(model):
        gradients = torch.autograd.grad(loss().reshape(()), list(trained.values()), allow_unused=True)
    return {"parameters": gather.parameters(model, dict(zip(trained, gradients, strict=True))), "phase": "init"}


def _if_blind(probe: Probe | None) -> Probe | None:
    """A probe of the future that nothing passed: a model that sees no future, though its targets are its own inputs.

    Where something passes, nothing is said: a model may well look both ways to give back its input.
    """
    return probe if probe is not None and probe.change <= max(1e-6, 10 * probe.noise) else None


def _skips(model: nn.Module, seen: Seen, budget: Budget | None, feed: Feed | None) -> tuple[Probe, ...]:
    joins = _quiet(seen)[: max(0, budget.left - 2)] if budget is not None else []
    if not joins or budget is None or feed is None:
        return ()
    try:
        return probes.skip(model, joins, lambda: budget(feed.first))
    except OverBudgetError:
        return ()


def _quiet(seen: Seen) -> list[Join]:
    """The sublayers whose branch writes least at initialization, at most `SKIPS`."""
    ratio = seen.readings.get("branch_ratio")
    if ratio is None:
        return []
    row = dict(zip((place.index for place in ratio.places), ratio.first, strict=True))
    low = [join for join in seen.wiring.joins if row.get(join.index, np.nan) < QUIET]
    return sorted(low, key=lambda join: row[join.index])[:SKIPS]


def _stand_in(model: nn.Module, options: Options, notes: list[str]) -> Optimizer:
    lr = options.lr or DEFAULT_LR
    trained = [p for p in model.parameters() if p.requires_grad]
    if not trained:
        raise InputError("no parameter of the model is trainable; there is nothing to rehearse")
    notes.append(f"no optimizer given: rehearsed with torch's AdamW at a peak learning rate of {lr:g}")
    return torch.optim.AdamW(trained, lr=lr)


def _needs_closure(optimizer: Optimizer) -> bool:
    return isinstance(optimizer, torch.optim.LBFGS)


def _with_pace(schedule: Schedule, per_tick: float | None) -> Schedule:
    return Schedule(schedule.name, schedule.warmup_steps, schedule.total_steps, per_tick, schedule.planned)
