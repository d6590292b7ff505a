"""What the targets are: seen where the user's loss calls a cross-entropy."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

ENOUGH = 20
"""Targets per class without which the entropy of their frequencies is not estimated."""
CLASSES = 1 << 20
ALIKE = 0.99


class Targets(TorchFunctionMode):
    """While it is entered, sees the cross-entropies that are computed; changes nothing.

    vocab      number of classes of the last one with integer targets, None where none was seen
    """

    def __init__(self) -> None:
        super().__init__()
        self.vocab: int | None = None
        self.first: Tensor | None = None
        self._ignored = -100
        self._counts: Tensor | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.cross_entropy or func is F.nll_loss:
            with torch._C.DisableTorchFunction():
                self._see(*args[:2], **kwargs)
        return func(*args, **kwargs)

    def _see(self, input: Tensor, target: Tensor, ignore_index: int = -100, **_: Any) -> None:
        if target.is_floating_point() or input.dim() < 1 or target.is_meta:
            return
        classes = input.shape[1] if input.dim() > 1 else input.shape[0]
        self.vocab, self._ignored = classes, ignore_index
        if self.first is None:
            self.first = target.detach().clone()
        kept = target.detach().flatten()
        kept = kept[(kept != ignore_index) & (kept >= 0) & (kept < classes)]
        if classes <= CLASSES:
            found = torch.bincount(kept, minlength=classes).cpu()
            same = self._counts is not None and len(self._counts) == classes
            self._counts = self._counts + found if same and self._counts is not None else found

    @property
    def unigram_entropy(self) -> float | None:
        """-sum p ln p of the targets seen, nats, with the correction (K - 1) / 2N of Miller and Madow for few samples.

        None with fewer than `ENOUGH` targets per class that occurs.
        """
        if self._counts is None or not int(self._counts.sum()):
            return None
        counts = self._counts[self._counts > 0].double()
        total, kinds = float(counts.sum()), len(counts)
        if total < ENOUGH * kinds:
            return None
        shares = counts / total
        return min(float(-(shares * shares.log()).sum()) + (kinds - 1) / (2 * total), math.log(max(kinds, 1)))

    def shifted_from(self, inputs: Iterable[Tensor]) -> Tensor | None:
        """The integer input [batch, tokens] whose next tokens the targets are, None where there is none."""
        return next((ids for ids in inputs if _tokens(ids) and self._agree(ids[:, 1:], ids) >= ALIKE), None)

    def copied_from(self, inputs: Iterable[Tensor]) -> float | None:
        """The largest share of targets that equal an integer input at their own position; None without such input."""
        shares = [self._agree(ids, ids) for ids in inputs if _tokens(ids)]
        return max((share for share in shares if share >= 0), default=None)

    def _agree(self, wanted: Tensor, ids: Tensor) -> float:
        """Share of the targets that equal `wanted`, laid over the start of each row; -1 where shapes do not fit."""
        batch, tokens = ids.shape
        if self.first is None or self.first.numel() not in (batch * tokens, batch * (tokens - 1)):
            return -1.0
        rows = self.first.reshape(batch, -1)
        length = min(rows.shape[1], wanted.shape[1])
        told = rows[:, :length] != self._ignored
        if not bool(told.any()):
            return -1.0
        return float((rows[:, :length] == wanted[:, :length].to(rows.device))[told].double().mean())


def _tokens(tensor: Tensor) -> bool:
    integer = not tensor.is_floating_point() and not tensor.is_complex() and tensor.dtype != torch.bool
    return integer and tensor.dim() == 2 and tensor.shape[1] > 2 and torch.unique(tensor).numel() > 2
