"""`check`: read the wiring, measure the model at initialization, rehearse the first steps, and judge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from streamgauge.errors import InputError
from streamgauge.gauge import measure
from streamgauge.preflight import gather
from streamgauge.preflight.budget import Budget, Feed
from streamgauge.preflight.objective import Inputs, inputs_of, random_direction
from streamgauge.preflight.phases import Options, Seen, initial_parameters, probe_phase, train_phase
from streamgauge.preflight.result import CheckResult
from streamgauge.preflight.trainer import is_trainer, job_of
from streamgauge.preflight.verdict import verdict
from streamgauge.rules import Evidence, examine
from streamgauge.wiring import guess_inputs, load_model, read_wiring

SEED = 0
LARGEST = 300_000_000
"""A model with more parameters than this is read on the meta device and not run here."""
NO_VALUES = "the model has no values here (meta device): only its wiring is judged"


@dataclass(frozen=True)
class Asked:
    """What to call the target, and which rules to ask."""

    target: str
    select: Iterable[str] = ()
    ignore: Iterable[str] = ()
    thresholds: Mapping[str, Mapping[str, float]] | None = None


def check(
    model: Any,
    loss_fn: Callable[[Any], Tensor] | None = None,
    batches: Iterable[Any] | None = None,
    optimizer: Optimizer | None = None,
    *,
    lr: float | None = None,
    warmup: int | None = None,
    steps: int | None = None,
    clip: float | None = None,
    accumulate: int = 1,
    schedule: Any = None,
    precision: str | torch.dtype | None = None,
    budget: int = 60,
    seconds: float | None = None,
    inputs: tuple[Any, ...] | dict[str, Any] | None = None,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    thresholds: Mapping[str, Mapping[str, float]] | None = None,
    target: str | None = None,
) -> CheckResult:
    """Judge a training before it runs: its wiring, the model as it is, and some dozens of real steps, all undone.

    model             a torch.nn.Module, or a transformers Trainer, which brings all the rest
    loss_fn, batches  loss_fn(batch) -> scalar loss in nats. Without them only the wiring and one pass are judged: the
                      gradient is that of a random direction in the output, and `inputs` (or inputs guessed from the
                      signature) are what the model reads
    optimizer         steps in the rehearsal, its hooks fire; None: torch's AdamW at `lr`, by default 1e-3
    lr                peak learning rate; by default what the schedule reaches, `initial_lr`, or the optimizer's
    warmup, steps     optimizer steps of warm-up and of the whole run, where no `schedule` says them
    schedule          an LRScheduler (ticks after each step), or a function step -> multiplier of the peak rate
    clip, accumulate  largest global gradient norm; batches in one optimizer step
    precision         "bf16" or "fp16" runs the loss under autocast, fp16 with a GradScaler
    budget            most calls of loss_fn, all phases together
    seconds           wall-clock cap of the rehearsal; by default 40, and at least 16 steps
    select, ignore    codes, names or family letters of rules
    thresholds        rule -> {setting: value}, in place of the defaults that `explain` lists

    Parameters, optimizer, schedule, gradients, buffers, modes, hooks and random states are afterwards as before, bit
    for bit (`state.preserved`); of an iterator of batches the elements drawn are used up, which a note says.
    An exception of the user's code passes through, with all put back. Raises InputError when there is nothing to read.
    """
    options = Options(lr, warmup, steps, clip, accumulate, schedule, gather.precision_of(precision))
    asked = Asked(target or "", select, ignore, thresholds)
    if is_trainer(model):
        with job_of(model) as job:
            options = replace(job.options, lr=lr, warmup=warmup if warmup is not None else job.options.warmup)
            counted = Budget(job.loss_fn, budget, seconds)
            asked = replace(asked, target=target or job.target)
            return _rehearsed(job.model, counted, job.batches, job.optimizer, options, asked, job.objects)
    if not isinstance(model, nn.Module):
        raise InputError(f"check judges a torch.nn.Module, this is a {type(model).__name__}; pass the model itself")
    if isinstance(loss_fn, Optimizer):
        raise InputError("the second argument is an optimizer; the order is check(model, loss_fn, batches, optimizer)")
    asked = replace(asked, target=target or type(model).__name__)
    if loss_fn is None:
        return _unrehearsed(model, inputs, optimizer, asked)
    counted = Budget(loss_fn, budget, seconds)
    if _on_meta(model):
        given = inputs_of(model, counted, Feed(batches).first)
        wiring = read_wiring(model, *given.args, **given.kwargs)
        return _judged(Seen(model, wiring, given, notes=[*wiring.notes, NO_VALUES]), asked)
    return _rehearsed(model, counted, batches, optimizer, options, asked)


def check_target(
    target: str,
    *,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    thresholds: Mapping[str, Mapping[str, float]] | None = None,
) -> CheckResult:
    """`check` on what the command line names: a preset, a config file, a checkpoint folder or a factory.

    A model of up to `LARGEST` parameters that comes from a config is built with fresh weights and measured; a larger
    one is read on the meta device. Weights and guessed inputs are drawn with seed `SEED`.
    """
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        source = load_model(target, largest=LARGEST)
        result = check(
            source.model,
            inputs=source.inputs,
            select=select,
            ignore=ignore,
            thresholds=thresholds,
            target=source.description,
        )
    return replace(result, notes=tuple(dict.fromkeys((*source.notes, *result.notes))))


def _rehearsed(
    model: nn.Module,
    budget: Budget,
    batches: Iterable[Any] | None,
    optimizer: Optimizer | None,
    options: Options,
    asked: Asked,
    objects: Iterable[Any] = (),
) -> CheckResult:
    if optimizer is not None:
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if not any(id(p) in held for p in model.parameters()):
            raise InputError("the optimizer holds no parameter of this model; build it from model.parameters()")
    seen, feed, targets = train_phase(model, budget, batches, optimizer, options, objects)
    probe_phase(model, seen, budget, feed, targets)
    return _judged(seen, asked, budget.spent)


def _unrehearsed(
    model: nn.Module, inputs: tuple[Any, ...] | dict[str, Any] | None, optimizer: Optimizer | None, asked: Asked
) -> CheckResult:
    """Without a loss: the wiring, and the gradient of a random direction in the output."""
    given, notes = _given(model, inputs)
    wiring = read_wiring(model, *given.args, **given.kwargs)
    seen = Seen(model, wiring, given, notes=[*notes, *wiring.notes])
    if _on_meta(model):
        seen.notes.append(NO_VALUES)
        return _judged(seen, asked)
    loss = random_direction(model, given)
    seen.notes.append("no loss given: gradients are those of a random direction in the output, nothing is rehearsed")
    seen.readings = measure(model, wiring, loss)
    seen.readings.pop("loss", None)  # the value of a random direction is no loss
    seen.facts = initial_parameters(model, loss)
    if optimizer is not None:
        seen.facts |= {"setup": gather.setup(optimizer, model), "optimizer": type(optimizer).__name__}
    probe_phase(model, seen)
    return _judged(seen, asked)


def _judged(seen: Seen, asked: Asked, spent: int = 0) -> CheckResult:
    config = getattr(seen.model, "config", None)
    if getattr(config, "_name_or_path", ""):
        seen.facts["pretrained"] = True
    seen.facts["flags"] = gather.flags(seen.model) or None
    examination = examine(
        Evidence(seen.wiring, seen.readings, seen.facts), asked.select, asked.ignore, asked.thresholds
    )
    answer = verdict(examination, seen.wiring, seen.rehearsed, seen.schedule)
    notes = tuple(dict.fromkeys(seen.notes))
    return CheckResult(
        asked.target, seen.wiring, answer, examination, seen.readings, notes, seen.facts, seen.rehearsed, spent
    )


def _given(model: nn.Module, inputs: tuple[Any, ...] | dict[str, Any] | None) -> tuple[Inputs, tuple[str, ...]]:
    if isinstance(inputs, dict):
        return Inputs((), inputs), ()
    if inputs is not None:
        return Inputs(tuple(inputs), {}), ()
    args, kwargs, notes = guess_inputs(model)
    return Inputs(args, kwargs), tuple(notes)


def _on_meta(model: nn.Module) -> bool:
    return any(p.is_meta for p in model.parameters())
