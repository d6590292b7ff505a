"""The registry of remedies and the one function that applies them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from torch import nn
from torch.optim import Optimizer

from streamgauge.errors import InputError
from streamgauge.registry import Registry

Remedy = Callable[[nn.Module, Optimizer | None], list[str]]
R = TypeVar("R", bound=Remedy)

REMEDIES: Registry[Remedy] = Registry("remedy")


def remedy(finding: str) -> Callable[[R], R]:
    """Register a function as the remedy for the finding of that name."""

    def register(function: R) -> R:
        REMEDIES.add(finding, function)
        return function

    return register


def apply(model: nn.Module, name: str, optimizer: Optimizer | None = None) -> list[str]:
    """Apply in place the remedy for the finding `name`; returns one line per change, [] when nothing was to do.

    Raises InputError for a name without a remedy, and when the remedy needs an optimizer and none is given.
    """
    return REMEDIES[name](model, optimizer)


def needs_optimizer(name: str, optimizer: Optimizer | None) -> Optimizer:
    if optimizer is None:
        raise InputError(f"the remedy {name!r} changes the optimizer; pass optimizer=...")
    return optimizer
