"""`check`: read the wiring, measure the model at initialization, and judge both, before anything is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from streamgauge.errors import InputError
from streamgauge.gauge import measure
from streamgauge.preflight.objective import Inputs, inputs_of, random_direction
from streamgauge.preflight.result import CheckResult
from streamgauge.rules import Evidence, Examination, examine
from streamgauge.vocabulary import Finding, Readings, Verdict, Wiring
from streamgauge.wiring import guess_inputs, load_model, read_wiring

SEED = 0
LARGEST = 300_000_000
"""A model with more parameters than this is read on the meta device and not run here."""


def check(
    model: nn.Module,
    loss_fn: Callable[[Any], Tensor] | None = None,
    batches: Iterable[Any] | None = None,
    optimizer: Optimizer | None = None,
    *,
    inputs: tuple[Any, ...] | dict[str, Any] | None = None,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    target: str | None = None,
) -> CheckResult:
    """Judge a model before its run: its wiring, and one forward and backward pass at the weights it has.

    loss_fn, batches   loss_fn(batch) -> scalar loss in nats; the first batch is taken. Without them the gradient is
                       that of a random direction in the output, and `inputs` (or inputs guessed from the signature)
                       are what the model reads
    optimizer          names the optimizer to the rules; it does not step
    select, ignore     codes, names or family letters of rules

    Parameters, gradients, buffers, modes, hooks and random state are as before; of `batches` one element is used up.
    Raises InputError when there is nothing to read.
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"check judges a torch.nn.Module, this is a {type(model).__name__}; pass the model itself")
    notes: list[str] = []
    if loss_fn is not None:
        batch = _first(batches)
        given = inputs_of(model, loss_fn, batch)
        loss: Callable[[], Tensor] | None = lambda: loss_fn(batch)  # noqa: E731 (closes over the batch)
    else:
        given, guessed = _given(model, inputs)
        notes += guessed
        loss = None if _on_meta(model) else random_direction(model, given)
        notes.append("no loss given: gradients are those of a random direction in the output")
    wiring = read_wiring(model, *given.args, **given.kwargs)
    notes += wiring.notes
    readings: dict[str, Readings] = {}
    if loss is None or _on_meta(model):
        notes[-1:] = ["the model has no values here (meta device): only its wiring is judged"]
    else:
        readings = measure(model, wiring, loss)
        if loss_fn is None:  # the value of a random direction is no loss
            readings.pop("loss", None)
    facts = {"optimizer": type(optimizer).__name__ if optimizer is not None else None}
    examination = examine(Evidence(wiring, readings, facts), select, ignore)
    answer = _answer(examination, wiring)
    return CheckResult(target or type(model).__name__, wiring, answer, examination, readings, tuple(notes))


def check_target(target: str, *, select: Iterable[str] = (), ignore: Iterable[str] = ()) -> CheckResult:
    """`check` on what the command line names: a preset, a config file, a checkpoint folder or a factory.

    A model of up to `LARGEST` parameters that comes from a config is built with fresh weights and measured; a larger
    one is read on the meta device. Weights and guessed inputs are drawn with seed `SEED`.
    """
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        source = load_model(target, largest=LARGEST)
        result = check(source.model, select=select, ignore=ignore, target=source.description)
    notes = (*source.notes, *result.notes)
    return CheckResult(
        result.target, result.wiring, result.answer, result.examination, result.readings, tuple(dict.fromkeys(notes))
    )


def _first(batches: Iterable[Any] | None) -> Any:
    if batches is None:
        raise InputError("a loss_fn needs data; pass batches, an iterable of what loss_fn takes")
    for batch in batches:
        return batch
    raise InputError("batches is empty; pass an iterable with at least one batch")


def _given(model: nn.Module, inputs: tuple[Any, ...] | dict[str, Any] | None) -> tuple[Inputs, tuple[str, ...]]:
    if isinstance(inputs, dict):
        return Inputs((), inputs), ()
    if inputs is not None:
        return Inputs(tuple(inputs), {}), ()
    args, kwargs, notes = guess_inputs(model)
    return Inputs(args, kwargs), tuple(notes)


def _on_meta(model: nn.Module) -> bool:
    return any(p.is_meta for p in model.parameters())


def _answer(examination: Examination, wiring: Wiring) -> Verdict:
    """A finding of level warning or above puts the run at risk; nothing here can promise that it trains."""
    worst: Finding | None = next((f for f in examination.findings if f.severity != "info"), None)
    if worst is not None:
        return Verdict("at risk", f"{worst.name}: {worst.message}")
    reason = "no fault in the wiring or at initialization; whether it trains shows only in training"
    return Verdict("not assessed", reason if wiring.joins else "no residual join was found")
