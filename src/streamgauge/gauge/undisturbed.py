"""Run a model without a trace: random numbers and buffers are put back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Inside, the model may run; afterwards the random states and the model's buffers are what they were, bit for bit.

    Parameters and their gradients are the caller's affair: nothing here takes a step.
    """
    buffers = {name: b for name, b in model.named_buffers() if not b.is_meta}
    kept = {name: b.detach().clone() for name, b in buffers.items()}
    devices = {p.device for p in model.parameters() if p.device.type not in ("cpu", "meta")}
    kind = next(iter(devices)).type if devices else "cuda"
    with torch.random.fork_rng(sorted(d.index or 0 for d in devices), device_type=kind):
        try:
            yield
        finally:
            with torch.no_grad():
                for name, buffer in buffers.items():
                    buffer.copy_(kept[name])
