"""Values on their way from the device to the store: kept where they are, fetched together."""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor

Row = tuple[int, str, int, float]


class Ledger:
    """Readings that may still lie on an accelerator. `settle` fetches all of them with one transfer per device."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, str, int, float | Tensor]] = []
        self.on_host = True

    def put(self, step: int, signal: str, place: int, value: float | Tensor) -> None:
        """Enter one value; a 0-d tensor is copied, so that later changes in place do not reach it."""
        if isinstance(value, Tensor):
            if value.device.type == "cpu":
                value = float(value)
            else:
                value = value.detach().to(torch.float32 if value.device.type == "mps" else torch.float64, copy=True)
                self.on_host = False
        self._waiting.append((step, signal, place, value))

    def settle(self) -> list[Row]:
        """All values entered since the last call, as plain numbers in the order of entry."""
        waiting, self._waiting = self._waiting, []
        groups: dict[torch.device, list[Tensor]] = defaultdict(list)
        for *_, value in waiting:
            if isinstance(value, Tensor):
                groups[value.device].append(value)
        fetched = {device: iter(torch.stack(values).tolist()) for device, values in groups.items()}
        self.on_host = True
        return [
            (step, signal, place, next(fetched[value.device]) if isinstance(value, Tensor) else float(value))
            for step, signal, place, value in waiting
        ]
