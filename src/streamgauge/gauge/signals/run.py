"""Signals of the run as a whole: one number per step, place index -1."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from streamgauge.gauge.given import scalar
from streamgauge.gauge.sample import Sample, wide
from streamgauge.gauge.signals.base import signal


@signal(unit="nat", level="run")
def loss(value: Tensor | float) -> Tensor | float:
    """The training loss given to `step`, before the optimizer moves; nats for a cross-entropy."""
    return scalar(value, "step: the loss")


@signal(unit="nat", level="run")
def val_loss(value: float) -> float:
    """The loss on held-out data, as given to `record`."""
    return float(value)


@signal(level="run")
def lr(groups: Iterable[dict[str, Any]]) -> Tensor | float:
    """max over the optimizer's parameter groups of the learning rate of this step."""
    rates = [group["lr"] for group in groups]
    tensors = [rate.detach().reshape(()) for rate in rates if isinstance(rate, Tensor)]
    numbers = [float(rate) for rate in rates if not isinstance(rate, Tensor)]
    if tensors:
        return torch.stack([*tensors, *(torch.full_like(tensors[0], n) for n in numbers)]).max()
    return max(numbers)


@signal(unit="loss", level="run")
@torch.no_grad()
def grad_norm(gradients: Iterable[Tensor]) -> Tensor | None:
    """sqrt(sum over parameters of ||dL/dp||^2): the global l2 norm before clipping. Not measured without gradients.

    Each tensor's norm in float32 (float64 for float64 gradients), their sum in float64.
    """
    alike: dict[tuple[torch.device, torch.dtype], list[Tensor]] = defaultdict(list)
    for gradient in gradients:
        alike[gradient.device, gradient.dtype].append(_values(gradient) if gradient.is_sparse else gradient)
    if not alike:
        return None
    squares: list[Tensor] = []
    for (device, dtype), parts in alike.items():
        full = torch.promote_types(dtype, torch.float32)
        norms = torch._foreach_norm(parts) if full == dtype else torch._foreach_norm(parts, 2, dtype=full)
        squares.append(torch.stack(norms).to(wide(device)).square().sum())
    return torch.stack([square.to(squares[0].device) for square in squares]).sum().sqrt()


def _values(gradient: Tensor) -> Tensor:
    # torch.nn.Embedding(sparse=True) leaves one row per look-up, repeated rows are summed by coalesce
    return gradient.coalesce().values()


@signal(level="run")
def retention_total(first: Sample, last: Sample) -> Tensor:
    """rms(dL/dx_first) / rms(dL/dx'_last): gradient entering the first sublayer over that leaving the last."""
    return first.rms / last.rms


@signal(unit="s", level="run")
def step_time(seconds: float) -> float:
    """Wall-clock time from the previous `step` to this one."""
    return float(seconds)


@signal(unit="tokens/s", level="run")
def tokens_per_s(tokens: float, seconds: float) -> float:
    """Tokens of this step over its wall-clock time."""
    return tokens / seconds
