"""The outermost module calls of a training step: the models, as the script calls them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch
from torch import nn

from streamgauge.preflight.script.patches import Function, Patches

Meet = Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]


class Calls:
    """Tells `meet` of every module call that no other module call encloses and that records gradients.

    `nn.Module.__call__` itself is replaced: `meet` runs before the module's own hooks are collected, so that a gauge
    attached there sees this very call. Calls inside a backward pass (checkpointing) and in other threads are no roots.
    """

    def __init__(self, patches: Patches, meet: Meet) -> None:
        self._meet, self._inside, self.closed = meet, 0, False
        self._thread = threading.get_ident()
        patches.wrap(nn.Module, "__call__", self._call)

    def _call(self, original: Function, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if self.closed or self._inside or not torch.is_grad_enabled() or threading.get_ident() != self._thread:
            return original(module, *args, **kwargs)
        self._inside += 1
        try:
            self._meet(module, args, kwargs)
            return original(module, *args, **kwargs)
        finally:
            self._inside -= 1

    def enter(self) -> None:
        """Until `leave`, no call is a root."""
        self._inside += 1

    def leave(self) -> None:
        self._inside -= 1


class Method(nn.Module):
    """A method of a model as a module: `owner.name(*args)` becomes a module call that hooks can stand on.

    For loops that never call their model as a whole: `model.loss(batch)`, `model.forward(x)`, `training_step(batch)`.
    It holds the same parameters and submodules under the same names.
    """

    def __init__(self, owner: nn.Module, name: str) -> None:
        super().__init__()
        self._parameters, self._buffers, self._modules = owner._parameters, owner._buffers, owner._modules
        self._non_persistent_buffers_set = owner._non_persistent_buffers_set
        vars(self).update(owner=owner, name=name, method=getattr(owner, name), training=owner.training)

    owner: nn.Module
    name: str
    method: Function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.method(*args, **kwargs)

    def install(self) -> None:
        """Make `owner.name` this module, without entering it among the owner's submodules."""
        vars(self.owner)[self.name] = self


def owners(module: nn.Module) -> list[tuple[nn.Module, str]]:
    """The methods on the stack whose `self` is a module that holds this one, the innermost first."""
    return [(owner, name) for owner, name in methods() if owner is not module and _holds(owner, module)]


def methods() -> Iterator[tuple[nn.Module, str]]:
    """(self, name) of every method of a module that is running, the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_argcount and code.co_varnames[0] == "self":
            held = frame.f_locals.get("self")
            if isinstance(held, nn.Module) and not isinstance(held, Method) and hasattr(type(held), code.co_name):
                yield held, code.co_name
        frame = frame.f_back


def _holds(owner: nn.Module, module: nn.Module) -> bool:
    return any(part is module for part in owner.modules())
