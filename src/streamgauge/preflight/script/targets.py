"""The classification loss of a script: its targets, its last value, and how to compute it once more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from streamgauge.preflight.gather import Targets
from streamgauge.preflight.script.patches import Function, Patches

ENOUGH = 400_000
"""Targets counted; the entropy of more changes little."""


class SeenTargets(Targets):
    """`gather.Targets`, told by the functions themselves instead of a mode: the script's code is not ours to wrap.

    last     the last loss; again(logits) computes it for other logits of as many elements
    """

    def __init__(self, patches: Patches) -> None:
        super().__init__()
        self.last: Tensor | None = None
        self.again: Callable[[Tensor], Tensor] | None = None
        self._counted = 0
        for name in ("cross_entropy", "nll_loss"):
            patches.wrap(torch.nn.functional, name, self._loss)

    def _loss(self, original: Function, input: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(input, target, *args, **kwargs)
        if torch.is_grad_enabled() and isinstance(input, Tensor) and isinstance(target, Tensor):
            self._take(input, target, kwargs)
            if isinstance(result, Tensor) and result.numel() == 1:
                self.last, shape = result.detach(), input.shape
                self.again = lambda logits: original(logits.reshape(shape), target, *args, **kwargs)
        return result

    @torch.no_grad()
    def _take(self, input: Tensor, target: Tensor, kwargs: dict[str, Any]) -> None:
        if self._counted < ENOUGH:
            self._counted += target.numel()
            self._see(input, target, **kwargs)
