"""What a check may spend: evaluations of the loss, counted exactly, and the batches it draws."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch import Tensor

from streamgauge.errors import InputError

SECONDS = 40.0
"""Wall-clock cap where none is given: a check is to be over within a minute."""


class OverBudgetError(Exception):
    """The budget is spent; ends the phase that asked for more."""


class Budget:
    """The user's loss, counted: every call is one evaluation, with or without a backward, also one that raises.

    limit     evaluations in all
    seconds   wall-clock time after which `over_time` is true, `SECONDS` where it is not `asked` for
    """

    def __init__(self, loss_fn: Callable[[Any], Tensor], limit: int, seconds: float | None = None) -> None:
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 2:
            raise InputError(f"budget={limit!r}: give a number of loss evaluations, at least 2 (60 by default)")
        if seconds is not None and not seconds > 0:
            raise InputError(f"seconds={seconds!r}: give a positive time, or None for the default cap")
        self.limit, self.spent = limit, 0
        self.seconds, self.asked = SECONDS if seconds is None else seconds, seconds is not None
        self.loss = loss_fn
        self._began = time.perf_counter()

    @property
    def left(self) -> int:
        return self.limit - self.spent

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self._began

    @property
    def over_time(self) -> bool:
        return self.elapsed >= self.seconds

    def __call__(self, batch: Any) -> Tensor:
        if self.left < 1:
            raise OverBudgetError
        self.spent += 1
        return self.loss(batch)


class Feed:
    """Batches one after another: `first` again at the start, from the beginning once more where that is possible.

    drawn     elements taken from the user's iterable
    rounds    how often it was begun again
    """

    def __init__(self, batches: Iterable[Any] | None) -> None:
        if batches is None:
            raise InputError("a loss_fn needs data; pass batches, an iterable of what loss_fn takes")
        self._batches = batches
        self._ahead: Iterator[Any] = iter(batches)
        self.repeats = self._ahead is not batches
        self.drawn = self.rounds = 0
        try:
            self.first = next(self._ahead)
        except StopIteration:
            raise InputError("batches is empty; pass an iterable with at least one batch") from None
        self.drawn, self._used = 1, False

    def __next__(self) -> Any:
        if not self._used:
            self._used = True
            return self.first
        try:
            batch = next(self._ahead)
        except StopIteration:
            if not self.repeats:
                raise
            self._ahead = iter(self._batches)
            self.rounds += 1
            batch = next(self._ahead)
        self.drawn += 1
        return batch

    def __iter__(self) -> Iterator[Any]:
        return self

    @property
    def notes(self) -> list[str]:
        if self.repeats:
            return []
        return [f"batches is an iterator: {self.drawn} of its elements are used up"]
