"""What an optimizer will do: its kind, its groups and its constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from streamgauge.vocabulary import OptimizerSetup, ParameterGroup


def setup(
    optimizer: Optimizer, model: nn.Module | None = None, *, peaks: Sequence[float | None] | None = None
) -> OptimizerSetup:
    """The setup of any `torch.optim.Optimizer`, its own subclasses and foreign ones included.

    model   gives the names of the parameters; without it those that the optimizer keeps, else "<group>.<position>"
    peaks   per group, the rate that the schedule will reach (`gather.rates`); by default `initial_lr`, which a
            scheduler leaves in the group, else None

    A wrapper that holds the real optimizer in `.optimizer` (Accelerate's) is looked through.
    """
    optimizer = unwrapped(optimizer)
    names = {id(p): name for name, p in model.named_parameters()} if model is not None else {}
    groups = []
    for index, group in enumerate(optimizer.param_groups):
        kept = group.get("param_names") or [f"{index}.{i}" for i in range(len(group["params"]))]
        paths = tuple(names.get(id(p), name) for p, name in zip(group["params"], kept, strict=False))
        planned = peaks[index] if peaks is not None and index < len(peaks) else None
        peak = planned if planned is not None else number(group.get("initial_lr"))
        groups.append(
            ParameterGroup(paths, number(group.get("lr")) or 0.0, peak, number(group.get("weight_decay")) or 0.0)
        )
    first: Mapping[str, Any] = optimizer.param_groups[0] if optimizer.param_groups else {}
    beta1, beta2 = _betas(first)
    return OptimizerSetup(
        name=type(optimizer).__name__,
        groups=tuple(groups),
        beta1=beta1,
        beta2=beta2,
        eps=number(first.get("eps")),
        momentum=number(first.get("momentum")),
        steps_taken=_steps(optimizer),
    )


def unwrapped(optimizer: Any) -> Optimizer:
    """The optimizer inside a wrapper."""
    inner = getattr(optimizer, "optimizer", None)
    return unwrapped(inner) if isinstance(inner, Optimizer) else optimizer


def number(value: Any) -> float | None:
    """A plain float from a number or a tensor of one element, else None."""
    if isinstance(value, Tensor) and value.numel() == 1 and not value.is_meta:
        return float(value)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _betas(group: Mapping[str, Any]) -> tuple[float | None, float | None]:
    betas = group.get("betas")
    if isinstance(betas, Sequence) and len(betas) >= 2:
        return number(betas[0]), number(betas[1])
    return number(group.get("beta1")), number(group.get("beta2") or group.get("alpha"))


@torch.no_grad()
def _steps(optimizer: Optimizer) -> int:
    counts = (number(state.get("step")) for state in optimizer.state.values() if isinstance(state, dict))
    return int(max((count for count in counts if count is not None), default=0))
