"""What the user's functions keep: cells of closures, globals they use, attributes of the objects they belong to."""

from __future__ import annotations

import dis
import functools
import io
import site
import sys
import sysconfig
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from streamgauge.preflight.held import Held

OWN = (nn.Module, Optimizer, LRScheduler, torch.amp.GradScaler, torch.Tensor, torch.Generator, np.random.Generator)
PLAIN = (bool, int, float, str, bytes, complex, type(None))
LARGEST = 1 << 24
"""Bytes of a tensor or array, items of a list: what is larger is taken for data and not copied."""

_LIBRARIES = tuple({*sysconfig.get_paths().values(), *site.getsitepackages()} - {sysconfig.get_path("data")})


class Reach:
    """Walks from functions to everything they can change, and holds it.

    schedulers, modules   the objects of these kinds that were met
    unsteady              one line for each thing that has a position of its own and cannot be put back
    """

    def __init__(self, held: Held) -> None:
        self.schedulers: list[LRScheduler] = []
        self.modules: list[nn.Module] = []
        self.unsteady: list[str] = []
        self._held = held
        self._seen: set[int] = set()

    def into(self, roots: Iterable[Any]) -> None:
        """Walk from these functions and objects."""
        ahead = list(roots)
        self._held.largest = LARGEST
        try:
            while ahead:
                value = ahead.pop()
                if isinstance(value, (*PLAIN, type, types.ModuleType, torch.Tensor)) or id(value) in self._seen:
                    continue
                self._seen.add(id(value))
                ahead.extend(self._step(value))
        finally:
            self._held.largest = None

    def _step(self, value: Any) -> Iterator[Any]:
        if isinstance(value, types.MethodType):
            yield value.__func__
            yield value.__self__
        elif isinstance(value, types.FunctionType):
            yield from self._function(value)
        elif isinstance(value, functools.partial):
            yield from (value.func, *value.args, *value.keywords.values())
        elif isinstance(value, LRScheduler):
            self.schedulers.append(value)
            self._held.take(value)
            nested = getattr(value, "_schedulers", ())
            yield from nested if isinstance(nested, list | tuple) else ()
        elif isinstance(value, nn.Module):
            self.modules.append(value)
            for module in value.modules():
                self._held.take(module)
        elif isinstance(value, Iterator | io.IOBase):
            self.unsteady.append(f"a {type(value).__name__} ({getattr(value, '__name__', 'without a name')})")
        elif isinstance(value, dict):
            self._held.take(value)
            yield from value.values()
        elif isinstance(value, list | tuple | set | frozenset):
            self._held.take(value)
            yield from list(value)[:1000]
        elif isinstance(value, OWN):
            self._held.take(value)
        elif users_own(type(value)) and hasattr(value, "__dict__"):
            self._held.attributes(value)
            yield from value.__dict__.values()
            if callable(value):
                yield vars(type(value)).get("__call__")

    def _function(self, function: types.FunctionType) -> Iterator[Any]:
        for cell in function.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError:  # a cell that is not filled yet
                continue
            put = self._held.take(content)
            self._held.call(lambda cell=cell, put=put: setattr(cell, "cell_contents", put()))  # type: ignore[misc]
            yield content
        yield from function.__defaults__ or ()
        if not users_own(function):
            return
        space = function.__globals__
        for name in _names(function.__code__):
            if name in space and not isinstance(space[name], type | types.ModuleType):
                put = self._held.take(space[name])
                self._held.call(functools.partial(_put_global, space, name, put))
                yield space[name]


def _put_global(space: dict[str, Any], name: str, put: Callable[[], Any]) -> None:
    space[name] = put()


def users_own(thing: Any) -> bool:
    """Was this function or class written by the user, and not in Python's or an installed library?"""
    home = getattr(thing, "__module__", None) or ""
    if home == "__main__":
        return True
    module = sys.modules.get(home)
    code = getattr(thing, "__code__", None)
    file = code.co_filename if code is not None else getattr(module, "__file__", None)
    if file is None:  # built in, or a class made by exec in a module that is not registered
        return module is None
    return not home.startswith("streamgauge.") and not file.startswith(_LIBRARIES)


def _names(code: types.CodeType) -> set[str]:
    """The globals that a function reads or writes, in its inner functions too."""
    found = {i.argval for i in dis.get_instructions(code) if "GLOBAL" in i.opname}
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            found |= _names(inner)
    return found
