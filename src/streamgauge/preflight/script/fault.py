"""A step whose loss or gradient is not finite: the forward and backward pass once more, operation by operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from streamgauge.preflight.objective import Inputs
from streamgauge.preflight.origin import trace_origin
from streamgauge.vocabulary import Origin
from streamgauge.wiring import tensors_of


def origin_of(
    model: nn.Module, inputs: Inputs, again: Callable[[Tensor], Tensor] | None, dtype: torch.dtype | None, step: int
) -> Origin | None:
    """The operation that made the first value that is not finite, in one more pass over the same inputs.

    again   the loss of the model's first output; without it, or where it does not fit, the output's own `loss`, else
            its sum: what the script computes from the output is not known
    dtype   that of the autocast region; the gradients of the model are put back
    """
    kept = [(p, p.grad) for p in model.parameters()]
    for parameter, _ in kept:
        parameter.grad = None
    device = next((p.device.type for p, _ in kept), "cpu")

    def evaluate() -> Tensor:
        with torch.autocast(device, dtype=dtype, enabled=dtype is not None):
            return loss_of(model(*inputs.args, **inputs.kwargs), again)

    try:
        return trace_origin(model, evaluate, step=step)
    except Exception:  # the trace runs foreign code under a recorder: a fault in it is no news
        return None
    finally:
        for parameter, gradient in kept:
            parameter.grad = gradient


def loss_of(output: object, again: Callable[[Tensor], Tensor] | None) -> Tensor:
    """The loss of a model's output, as `origin_of` takes it."""
    own = output.get("loss") if isinstance(output, Mapping) else None
    if isinstance(own, Tensor):
        return own
    values = [t for t in tensors_of(output) if t.is_floating_point() and t.requires_grad]
    for value in values if again is not None else ():
        try:
            return again(value) if again is not None else value
        except Exception:  # not the logits of that loss
            continue
    return torch.stack([value.float().sum() for value in values]).sum()
