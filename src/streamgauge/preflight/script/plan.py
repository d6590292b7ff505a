"""How the steps of a rehearsal are spent: first at the script's own rates, then at the peak of its schedule."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from streamgauge.preflight.gather.optimizer import number

OWN = 1 / 3
"""Share of the steps at the rates that the script sets."""
RAMP = 1 / 3
"""Share of the steps over which the rates rise to the peak, where they are not there yet."""
FEWEST = 8
"""Optimizer steps that are made whatever the budget, unless time is up."""


class Plan:
    """Steps and learning rates of the rehearsal.

    evaluations   backward passes that may be spent, seconds: time from the first step; FEWEST steps are made anyway
                  (four times the seconds at most)

    lr(t) = own(t)                            for t < OWN * n
          = own(t) + (peak - own(t)) * r      rising linearly, r from 0 to 1 over the next RAMP * n steps
          = peak                              from there
    A rate that is at its peak already stays.
    """

    def __init__(self, evaluations: int, seconds: float) -> None:
        self.evaluations, self.seconds = evaluations, seconds
        self.steps = 0
        self._began: float | None = None
        self.cut = False
        self._own: list[tuple[dict[str, Any], Any]] = []

    def begin(self, accumulate: int) -> None:
        """Fix the number of steps, once the backward passes of the first one are known."""
        if not self.steps:
            self.steps = max(FEWEST, self.evaluations // max(1, accumulate))
            self._began = time.monotonic()

    def share(self, step: int) -> float:
        """How far step `step` has gone from the script's own rate (0) to the peak (1)."""
        own, ramp = self.steps * OWN, max(1.0, self.steps * RAMP)
        return min(1.0, max(0.0, (step + 1 - own) / ramp))

    def raise_rates(self, optimizer: Optimizer, peaks: list[float | None], step: int) -> bool:
        """Set the rates of this step, until `lower_rates`; whether any was raised."""
        share = self.share(step)
        for group, peak in zip(optimizer.param_groups, peaks, strict=False):
            now = number(group.get("lr"))
            if now is None or peak is None or not peak > now or share == 0:
                continue
            lr = group["lr"]
            self._own.append((group, lr.clone() if isinstance(lr, Tensor) else lr))
            _set(group, now + (peak - now) * share)
        return bool(self._own)

    def lower_rates(self) -> None:
        """Put the script's own rates back: schedulers that go on from the last rate must not see ours."""
        for group, lr in self._own:
            _set(group, lr)
        self._own.clear()

    def over(self, steps: int, skipped: int = 0) -> bool:
        """Whether the rehearsal ends here."""
        if self._began is None:
            return False
        spent = time.monotonic() - self._began
        late = spent > self.seconds and (steps + skipped >= FEWEST or spent > 4 * self.seconds)
        if steps + skipped >= self.steps:
            return True
        self.cut = late
        return late

    def told(self, raised: Sequence[int]) -> str:
        """One line on how the steps were spent."""
        line = f"rehearsed in the script's own loop: up to {self.steps} optimizer steps"
        if raised:
            line += f", from step {raised[0]} on with the learning rate raised towards its peak"
        return line + (f"; cut short after {self.seconds:g} s" if self.cut else "")


def _set(group: dict[str, Any], lr: Any) -> None:
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(lr)
    else:
        group["lr"] = lr
