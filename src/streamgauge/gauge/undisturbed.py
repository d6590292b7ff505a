"""Run a model without a trace: random numbers and buffers are put back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from streamgauge.wiring.keep import python_random


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Inside, the model may run; afterwards random states and the model's buffers are what they were, bit for bit.

    The random states are those of `random`, `numpy.random` and torch, on the CPU and on the model's devices. A buffer
    is put back as the tensor object it was, with its values, whether forward wrote into it or assigned another.
    Parameters and their gradients are the caller's affair: nothing here takes a step.
    """
    held = [(m, dict(m._buffers)) for m in model.modules()]
    buffers = {id(b): b for _, own in held for b in own.values() if b is not None and not b.is_meta}
    kept = {key: b.detach().clone() for key, b in buffers.items()}
    devices = {p.device for p in model.parameters() if p.device.type not in ("cpu", "meta")}
    kind = next(iter(devices)).type if devices else "cuda"
    with python_random(), torch.random.fork_rng(sorted(d.index or 0 for d in devices), device_type=kind):
        try:
            yield
        finally:
            with torch.no_grad():
                for module, own in held:
                    module._buffers.clear()
                    module._buffers.update(own)
                for key, buffer in buffers.items():
                    buffer.copy_(kept[key])
