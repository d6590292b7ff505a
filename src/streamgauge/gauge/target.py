"""The model that is watched: its original module under torch.compile, and eager execution for a measured step."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import cast

import torch
from torch import nn

from streamgauge.errors import InputError


def original(model: nn.Module) -> nn.Module:
    """The module whose forward runs: a compiled model's original, any other model itself."""
    return cast(nn.Module, getattr(model, "_orig_mod", model))


def uncompiled(path: str) -> str:
    """The path of a module as the model that was compiled names it: without the wrapper's `_orig_mod`."""
    return ".".join(part for part in path.split(".") if part != "_orig_mod")


def modules_by_path(model: nn.Module) -> dict[str, nn.Module]:
    """Path -> module, under the names that the model gives and those it has without compiled wrappers."""
    named = dict(model.named_modules(remove_duplicate=False))
    plain: dict[str, nn.Module] = {}
    for path, module in named.items():
        plain.setdefault(uncompiled(path), module)  # a wrapper comes before what it wraps: its hooks run outside
    return {**plain, **named}


def is_compiled(model: nn.Module) -> bool:
    """True where any part of the model is compiled, by `torch.compile(m)` or by `m.compile()`."""
    return any(hasattr(m, "_orig_mod") or m._compiled_call_impl is not None for m in model.modules())


def wants_early_eager(model: nn.Module) -> bool:
    """True after `model.compile()`: the model's own hooks are compiled too, so eager has to be set before the call."""
    return original(model)._compiled_call_impl is not None


class Eager:
    """Run compiled code eagerly between `enter` and `leave`: hooks added after a compilation are silently ignored."""

    def __init__(self) -> None:
        self._stance: AbstractContextManager[object] | None = None

    def enter(self) -> None:
        if self._stance is None:
            self._stance = torch.compiler.set_stance("force_eager")
            self._stance.__enter__()

    def leave(self) -> None:
        if self._stance is not None:
            self._stance.__exit__(None, None, None)
            self._stance = None


def require_module(model: object) -> nn.Module:
    if not isinstance(model, nn.Module):
        raise InputError(
            f"the gauge watches a torch.nn.Module, this is a {type(model).__name__}; pass the model itself"
        )
    return model
