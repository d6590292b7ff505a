"""What a classification loss tells: the classes, the entropy of the targets, whether they are the next tokens."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from streamgauge.preflight.script.patches import Function, Patches

ENOUGH = 200_000
"""Targets counted; the entropy of more changes little."""
NEXT = 0.95
"""Share of the targets that must be the following input for the task to be next-token prediction."""


class Targets:
    """Watches `torch.nn.functional.cross_entropy` and `nll_loss` while gradients are recorded."""

    def __init__(self, patches: Patches) -> None:
        self.classes: int | None = None
        self.causal: bool | None = None
        self.last: Tensor | None = None
        self._counts: dict[int, Tensor] = {}
        self._taken = 0
        self._ids: Tensor | None = None
        for name in ("cross_entropy", "nll_loss"):
            patches.wrap(torch.nn.functional, name, self._loss)

    def read(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The inputs of the model's call: its first integer table is taken for the token ids."""
        given = [v for v in (kwargs.get("input_ids"), *args, *kwargs.values()) if isinstance(v, Tensor)]
        self._ids = next((v.detach() for v in given if not v.is_floating_point() and v.ndim == 2), None)

    def _loss(self, original: Function, logits: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
        ignored = kwargs.get("ignore_index", -100)
        if self._taken < ENOUGH and isinstance(logits, Tensor) and logits.requires_grad and isinstance(target, Tensor):
            self._take(logits, target, ignored)
        result = original(logits, target, *args, **kwargs)
        if isinstance(result, Tensor) and result.numel() == 1:
            self.last = result.detach()
        return result

    @torch.no_grad()
    def _take(self, logits: Tensor, target: Tensor, ignored: int) -> None:
        if target.is_floating_point() or target.is_meta or not target.numel():
            return
        self.classes = int(logits.shape[1] if logits.ndim > 1 else logits.shape[0])
        flat = target.detach().reshape(-1)
        kept = flat[(flat != ignored) & (flat >= 0) & (flat < self.classes)]
        counts = torch.bincount(kept, minlength=self.classes).cpu()
        known = self._counts.get(self.classes)
        self._counts[self.classes] = counts if known is None else known + counts
        self._taken += flat.numel()
        if self.causal is None and self._ids is not None and self._ids.shape[1] > 1:
            self.causal = _next_tokens(self._ids, flat, ignored)
        self._ids = None

    @property
    def entropy(self) -> float | None:
        """-sum p log p + (K - 1) / 2N in nats, of N targets of K kinds; None where no integer targets were seen.

        The second term takes out the bias of a small sample (Miller 1955); never above the log of the classes.
        """
        counts = self._counts.get(self.classes or -1)
        if counts is None or not int(counts.sum()):
            return None
        shares = (counts[counts > 0] / counts.sum()).tolist()
        plain = -math.fsum(p * math.log(p) for p in shares)
        return min(plain + (len(shares) - 1) / (2 * float(counts.sum())), math.log(max(2, len(counts))))


def _next_tokens(ids: Tensor, flat: Tensor, ignored: int) -> bool | None:
    rows, tokens = ids.shape
    if flat.numel() == rows * tokens:
        targets, following = flat.reshape(rows, tokens)[:, :-1], ids[:, 1:]
    elif flat.numel() == rows * (tokens - 1):
        targets, following = flat.reshape(rows, tokens - 1), ids[:, 1:]
    else:
        return None
    valid = targets != ignored
    if not bool(valid.any()):
        return None
    return float((targets == following)[valid].float().mean()) >= NEXT
