"""One forward and backward pass, measured at every place, that leaves the model as it found it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from streamgauge.errors import InputError
from streamgauge.gauge.hooks import Hook
from streamgauge.gauge.ledger import Ledger
from streamgauge.gauge.recorder import Recorder
from streamgauge.gauge.signals import SIGNALS, grad_norm
from streamgauge.gauge.target import Eager, is_compiled, require_module
from streamgauge.gauge.undisturbed import undisturbed
from streamgauge.vocabulary import RUN, Place, Readings, Wiring


def measure(model: nn.Module, wiring: Wiring, loss: Callable[[], Tensor]) -> dict[str, Readings]:
    """The readings of one step that is not taken: signal -> Readings with one row, at step 0.

    `loss` runs the model and returns a scalar; the model stays in the mode it is in. Gradients are computed beside
    the parameters' `.grad`, which are not touched; random states and buffers are put back bit for bit. Every place
    signal is there, NaN where a place did not show its tensors, with loss, grad_norm and retention_total.
    Raises InputError when `loss` does not return a scalar that depends on a trainable parameter.
    """
    recorder, eager, ledger = Recorder(require_module(model), wiring), Eager(), Ledger()

    def begin(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if torch.is_grad_enabled():
            recorder.begin(args, kwargs)

    root = model.register_forward_pre_hook(Hook(begin), with_kwargs=True)
    try:
        if is_compiled(model):
            eager.enter()
        with undisturbed(model), torch.enable_grad():
            value = loss()
            gradients = _gradients(value, model)
            measured, _, _ = recorder.finish()
    finally:
        root.remove()
        recorder.detach()
        eager.leave()
    for signal, place, number in measured:
        ledger.put(0, signal, place, number)
    ledger.put(0, "loss", -1, value.detach().reshape(()))
    norm = grad_norm(gradients)
    if norm is not None:
        ledger.put(0, "grad_norm", -1, norm)
    return _table({(signal, place): number for _, signal, place, number in ledger.settle()}, wiring)


def _gradients(value: object, model: nn.Module) -> list[Tensor]:
    if not isinstance(value, Tensor) or value.numel() != 1:
        got = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise InputError(f"the loss function returned {got}; it must return a tensor of one number")
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not value.requires_grad or not parameters:
        raise InputError("the loss does not depend on any trainable parameter; compute it from the model's output")
    # not .backward(): it would add to .grad and run optimizers that are hooked into the accumulation
    return [g for g in torch.autograd.grad(value.reshape(()), parameters, allow_unused=True) if g is not None]


def _table(found: dict[tuple[str, int], float], wiring: Wiring) -> dict[str, Readings]:
    places = tuple(Place(join.index, join.path, join.kind) for join in wiring.places)
    table: dict[str, Readings] = {}
    for name, signal in SIGNALS.items():
        at = places if signal.level == "place" else (RUN,)
        if signal.level == "run" and (name, RUN.index) not in found:
            continue
        values = np.array([[found.get((name, place.index), np.nan) for place in at]], dtype=np.float64)
        table[name] = Readings(name, values.reshape(1, len(at)), np.zeros(1, dtype=np.int64), at, signal.unit)
    return table
