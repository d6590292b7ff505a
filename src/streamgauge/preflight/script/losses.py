"""Backward passes: the losses of the step under way, as they were before scaling and division."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from streamgauge.preflight.script.patches import Function, Patches

REMEMBERED = 1024
SUM = 2
"""`reduction` of a loss that was summed, in autograd's own numbering."""


@dataclass
class Micro:
    """One backward pass: its number, the loss, and what its last operation divided by (1.0: nothing)."""

    number: int
    value: Tensor
    divisor: float = 1.0
    summed: bool = False


class Losses:
    """Every scalar whose `backward` was called; `of_step` gives the loss of the micro-batches since a given one.

    A loss that GradScaler.scale made is taken as it was before. With several micro-batches the loss of the step is
    their sum where each was divided by their number (or summed over the step's tokens), else their mean.

    before(loss) is told of each backward pass, with its loss if that is one number, after() when it is over. While
    `quiet` is set passes do not count.
    """

    def __init__(self, patches: Patches, before: Callable[[Tensor | None], None], after: Callable[[], None]) -> None:
        self.count = 0
        self.scaler: Any = None
        self._micros: deque[Micro] = deque(maxlen=REMEMBERED)
        self._scaled: tuple[weakref.ref[Tensor], Tensor] | None = None
        self._busy = self.quiet = False
        self._before, self._after = before, after
        patches.wrap(torch.Tensor, "backward", self._backward)
        patches.wrap(torch.autograd, "backward", self._backward)
        patches.wrap(torch.amp.GradScaler, "scale", self._scale)

    def _scale(self, original: Function, scaler: Any, outputs: Any) -> Any:
        self.scaler = scaler
        result = original(scaler, outputs)
        if isinstance(outputs, Tensor) and isinstance(result, Tensor) and outputs.numel() == 1:
            self._scaled = weakref.ref(result), outputs
        return result

    def _backward(self, original: Function, tensors: Any, *args: Any, **kwargs: Any) -> Any:
        if self._busy or self.quiet:
            return original(tensors, *args, **kwargs)
        self._busy = True
        try:
            self._before(self._note(tensors))
            return original(tensors, *args, **kwargs)
        finally:
            self._busy = False
            self._after()

    def _note(self, tensors: Any) -> Tensor | None:
        given = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        self.count += 1
        if len(given) != 1 or not isinstance(given[0], Tensor) or given[0].numel() != 1:
            return None
        loss = given[0]
        if self._scaled is not None and self._scaled[0]() is loss:
            loss = self._scaled[1]
        self._scaled = None
        divisor, summed = _division(loss)
        self._micros.append(Micro(self.count, loss.detach().reshape(()).clone(), divisor, summed))
        return self._micros[-1].value

    def of_step(self, since: int) -> Tensor | None:
        """The loss of the backward passes after number `since`; None where none of them was of a scalar."""
        micros = [micro for micro in self._micros if micro.number > since]
        if not micros:
            return None
        values = torch.stack([micro.value.float() for micro in micros])
        parts = all(abs(m.divisor - len(micros)) < 1e-3 * len(micros) or m.summed for m in micros)
        return values.sum() if parts else values.mean()


def _division(loss: Tensor) -> tuple[float, bool]:
    """(What the last operations divided by, whether that was of a sum over more than this batch), off the graph."""
    node: Any = loss.grad_fn
    divisor = 1.0
    while (factor := _factor(node)) is not None:
        divisor *= factor
        node = node.next_functions[0][0]
    counted = getattr(node, "_saved_total_weight", None)
    reduction = getattr(node, "_saved_reduction", None)
    summed = reduction == SUM and isinstance(counted, Tensor) and divisor > 1.01 * float(counted)
    return divisor, summed


def _factor(node: Any) -> float | None:
    """The number that an operation divides by (the inverse of one that it multiplies by); None for any other."""
    kind = type(node).__name__
    if kind not in ("DivBackward0", "MulBackward0"):
        return None
    other = getattr(node, "_saved_other", None)
    if isinstance(other, Tensor):
        other = float(other) if other.numel() == 1 and not other.is_meta else None
    if not isinstance(other, int | float) or other == 0:
        return None
    return float(other) if kind == "DivBackward0" else 1.0 / other
