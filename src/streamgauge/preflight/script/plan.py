"""How the steps of a rehearsal are spent: first at the script's own rates, then at the peak of its schedule."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from streamgauge.preflight.gather.optimizer import number

FEWEST = 24
"""Optimizer steps that are made however many backward passes each of them takes: with fewer the ramp is a jump."""
SHORT = 8
"""Optimizer steps that are waited for when the time is up, within PATIENCE times the seconds."""
PATIENCE = 2
LOW = 0.9
"""A rate below this share of its peak rises."""


class Plan:
    """Steps and learning rates of the rehearsal, n = evaluations / backward passes of a step.

    evaluations   backward passes that may be spent
    seconds       time from the first step on; it may be exceeded for `SHORT` steps

    lr(t) = own(t)                            for t < START
          = own(t) + (peak - own(t)) * r      r rising linearly from 0 to 1 over half of the steps that are left
          = peak                              from there, as in `preflight.pace`

    While the optimizer has a scheduler that was not stepped once, its own rate stays: that is what the run will see.
    """

    def __init__(self, evaluations: int, seconds: float) -> None:
        self.evaluations, self.seconds = evaluations, seconds
        self.steps = 0
        self.cut = False
        self._began: float | None = None
        self._set: list[tuple[dict[str, Any], Any, float]] = []

    def begin(self, accumulate: int) -> None:
        """Fix the number of steps, once the backward passes of the first one are known."""
        if not self.steps:
            self.steps = max(min(FEWEST, self.evaluations), self.evaluations // max(1, accumulate))
            self._began = time.monotonic()

    def share(self, step: int, begun: int) -> float:
        """How far step `step` has gone from the script's own rate (0) to the peak (1), rising since step `begun`."""
        return min(1.0, (step - begun + 1) / max(1, (self.steps - begun) // 2))

    def raise_rates(self, optimizer: Optimizer, peaks: Sequence[float | None], step: int, begun: int | None) -> bool:
        """Set the rates of this step, until `lower_rates`; whether any was raised.

        begun   the step from which the rates rise, None where they do not yet
        """
        for group, peak in zip(optimizer.param_groups, peaks, strict=False):
            now = number(group.get("lr"))
            if begun is None or now is None or peak is None or not peak > now:
                continue
            lr = group["lr"]
            kept = lr.clone() if isinstance(lr, Tensor) else lr
            _put(group, now + (peak - now) * self.share(step, begun))
            self._set.append((group, kept, number(group["lr"]) or 0.0))
        return bool(self._set)

    def lower_rates(self) -> None:
        """Put the script's own rates back, but where a scheduler has set a new one within the step.

        Schedulers that go on from the last rate must not see ours.
        """
        for group, own, ours in self._set:
            if number(group["lr"]) == ours:
                _put(group, own)
        self._set.clear()

    def over(self, steps: int) -> bool:
        """Whether the rehearsal ends after this many steps, those that a GradScaler skipped included."""
        if self._began is None:
            return False
        if steps >= self.steps:
            return True
        spent = time.monotonic() - self._began
        self.cut = spent > self.seconds and (steps >= SHORT or spent > PATIENCE * self.seconds)
        return self.cut

    def told(self, raised: Sequence[int]) -> str:
        """One line on how the steps were spent."""
        line = f"rehearsed in the script's own loop: {self.steps} optimizer steps planned"
        if raised:
            line += f", from step {raised[0]} on with the learning rate raised towards its peak"
        return line + (f"; cut short after {self.seconds:g} s" if self.cut else "")


def _put(group: dict[str, Any], lr: Any) -> None:
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(lr)
    else:
        group["lr"] = lr
