"""Gradient clipping, as far as it goes through torch's own functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from streamgauge.preflight.script.patches import Function, Patches


class Clipping:
    """`limit` is the largest norm (or value) seen as the argument; `norm_over` the norm before this step's clipping.

    `before` is told when gradients are about to be clipped for the first time in a step: they are whole then.
    """

    def __init__(self, patches: Patches, before: Callable[[], None]) -> None:
        self.limit: float | None = None
        self.by_value = False
        self._before = before
        self._step: list[tuple[list[Tensor], Tensor]] = []
        for place in (torch.nn.utils, torch.nn.utils.clip_grad):
            patches.wrap(place, "clip_grad_norm_", self._norm)
            patches.wrap(place, "clip_grad_value_", self._value)
            patches.wrap(place, "clip_grads_with_norm_", self._with_norm)

    def _norm(self, original: Function, parameters: Any, max_norm: Any, *args: Any, **kwargs: Any) -> Any:
        given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        self._before()
        total = original(given, max_norm, *args, **kwargs)
        self._take(given, max_norm, total, kwargs.get("norm_type", args[0] if args else 2.0))
        return total

    def _with_norm(self, original: Function, parameters: Any, max_norm: Any, total_norm: Any, *args: Any) -> Any:
        given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        self._before()
        self._take(given, max_norm, total_norm, 2.0)
        return original(given, max_norm, total_norm, *args)

    def _value(self, original: Function, parameters: Any, clip_value: Any, *args: Any, **kwargs: Any) -> Any:
        given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        self._before()
        self.by_value = True
        return original(given, clip_value, *args, **kwargs)

    def _take(self, parameters: list[Tensor], limit: Any, total: Any, kind: Any) -> None:
        self.limit = float(limit)
        if isinstance(total, Tensor) and float(kind) == 2.0:
            with_gradient = [p for p in parameters if p.grad is not None]
            self._step.append((with_gradient, total.detach().clone()))

    def norm_over(self, parameters: Sequence[Tensor]) -> Tensor | None:
        """The l2 norm over these parameters before clipping, if the calls of this step covered exactly them."""
        wanted = {id(p) for p in parameters if p.grad is not None}
        calls = [(names, norm) for names, norm in self._step if wanted.issuperset(map(id, names))]
        if not wanted or sum(len(names) for names, _ in calls) != len(wanted):
            return None
        total: Tensor = torch.linalg.vector_norm(torch.stack([norm.reshape(()).float() for _, norm in calls]))
        return total

    @property
    def seen(self) -> bool:
        """Whether anything was clipped in the step under way."""
        return bool(self._step)

    def close(self) -> None:
        """The step is over."""
        self._step.clear()
