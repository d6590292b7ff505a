"""Module calls of one forward pass: which module runs, and which tensors cross its boundary."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


def tensors_of(value: Any) -> list[Tensor]:
    """The tensors inside a value, in the order that `Tap.slot` counts.

    A tensor is itself; tuples and lists in order; mappings (transformers' outputs are such) by their values in
    order; dataclasses by their fields. Everything else (caches, masks held in objects, None) has none.
    """
    found: list[Tensor] = []
    _collect(value, found)
    return found


def _collect(value: Any, found: list[Tensor]) -> None:
    if isinstance(value, Tensor):
        found.append(value)
    elif isinstance(value, list | tuple):
        for item in value:
            _collect(item, found)
    elif isinstance(value, Mapping):
        for item in value.values():
            _collect(item, found)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            _collect(getattr(value, field.name), found)


class Call(NamedTuple):
    """One execution of a module: the `times`-th of the module at `path`, inside call `parent` (-1 for the root)."""

    path: str
    times: int
    parent: int


class Crossing(NamedTuple):
    """A tensor (node `node` of the graph) seen at a module boundary, `slot` as in `Tap`."""

    node: int
    call: int
    side: str
    slot: int


Touch = Callable[[Tensor], int]


class CallLog:
    """Keeps the stack of module calls while a forward pass runs, and every tensor that crosses a boundary."""

    def __init__(self, touch: Touch, adopt: Callable[[nn.Module], None]) -> None:
        self.calls: list[Call] = []
        self.crossings: list[Crossing] = []
        self.current = -1
        self._touch, self._adopt = touch, adopt
        self._counts: dict[str, int] = {}

    def _enter(self, path: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        count = self._counts.get(path, 0)
        self._counts[path] = count + 1
        self.calls.append(Call(path, count, self.current))
        self.current = len(self.calls) - 1
        self._adopt(module)
        self._cross("input", (args, kwargs))

    def _leave(self, path: str, output: Any) -> None:
        # An exception that the model catches can leave calls of submodules open.
        while self.current >= 0 and self.calls[self.current].path != path:
            self.current = self.calls[self.current].parent
        self._cross("output", output)
        self.current = self.calls[self.current].parent

    def _cross(self, side: str, value: Any) -> None:
        for slot, tensor in enumerate(tensors_of(value)):
            if tensor.is_floating_point():
                self.crossings.append(Crossing(self._touch(tensor), self.current, side, slot))

    @contextmanager
    def attached(self, model: nn.Module) -> Iterator[None]:
        """Hooks on every module of the model, removed at the end."""
        handles: list[torch.utils.hooks.RemovableHandle] = []
        try:
            for path, module in model.named_modules():

                def enter(module: nn.Module, args: Any, kwargs: Any, path: str = path) -> None:
                    self._enter(path, module, args, kwargs)

                def leave(module: nn.Module, args: Any, kwargs: Any, output: Any, path: str = path) -> None:
                    self._leave(path, output)

                handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
                handles.append(module.register_forward_hook(leave, with_kwargs=True))
            yield
        finally:
            for handle in handles:
                handle.remove()
