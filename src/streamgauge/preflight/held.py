"""Values held so that they can be put back: the same objects, with the content they had."""

from __future__ import annotations

import collections
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

Restore = Callable[[], Any]


class Held:
    """Clones of everything taken with `take`, put back by `restore`, bit for bit and into the same objects.

    Tensors keep identity and storage; lists, dicts, sets and deques are refilled; optimizers, schedulers, scalers,
    modules and random generators get their attributes back. Any other object is kept by reference: its own content
    is not looked at. Memory: one clone of each tensor, but none of tensors, arrays and lists above `largest` (bytes,
    items) while that is set: data sets that a function can see are not copied.
    """

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.largest: int | None = None
        self._known: dict[int, Restore] = {}
        self._alive: list[Any] = []
        self._order: list[Restore] = []

    def take(self, value: Any) -> Restore:
        """Hold a value; the function returned puts it back and answers what has to stand in its place."""
        if value is None or isinstance(value, bool | int | float | str | bytes | complex):
            return lambda: value
        if id(value) in self._known:
            return self._known[id(value)]
        done = False
        content: Restore = lambda: None  # noqa: E731 (filled below: a value may contain itself)

        def restore() -> Any:
            nonlocal done
            if not done:
                done = True
                content()
            return value

        self._known[id(value)] = restore
        self._alive.append(value)
        content = self._content(value)
        self._order.append(restore)
        return restore

    def attributes(self, value: Any) -> None:
        """Hold all attributes of an object, whatever its class."""
        self._alive.append(value)
        self._order.append(self._refill_dict(value.__dict__))

    def call(self, restore: Restore) -> None:
        """Have a function called at the end."""
        self._order.append(restore)

    def restore(self) -> None:
        """Put everything back. What refuses is named in `notes`, the rest is put back all the same."""
        with torch.no_grad():
            for restore in reversed(self._order):
                try:
                    restore()
                except Exception as error:  # one value that refuses must not keep the others
                    self.notes.append(f"not put back: {type(error).__name__}: {str(error).splitlines()[0]}")
        self._order.clear()
        self._known.clear()
        self._alive.clear()

    def _content(self, value: Any) -> Restore:
        if self.largest is not None and _size(value) > self.largest:
            self.notes.append(f"a {type(value).__name__} of {_size(value):,} bytes or items was not copied")
            return lambda: None
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, dict):
            return self._refill_dict(value)
        if isinstance(value, list | collections.deque):
            items = [self.take(item) for item in value]
            return lambda: _refill(value, [item() for item in items])
        if isinstance(value, tuple | frozenset):
            parts = [self.take(item) for item in value]
            return lambda: [part() for part in parts]
        if isinstance(value, set):
            kept = set(value)
            return lambda: _reset(value, kept)
        if isinstance(value, np.ndarray):
            copied = value.copy()
            return lambda: np.copyto(value, copied)
        if isinstance(value, torch.Generator):
            state = value.get_state()
            return lambda: value.set_state(state)
        if isinstance(value, np.random.Generator):
            bits = value.bit_generator.state
            return lambda: setattr(value.bit_generator, "state", bits)
        if isinstance(value, random.Random):
            seeds = value.getstate()
            return lambda: value.setstate(seeds)
        if isinstance(value, nn.Module | Optimizer | LRScheduler | torch.amp.GradScaler):
            limit, self.largest = self.largest, None
            put = self._refill_dict(value.__dict__)
            self.largest = limit
            return put
        return lambda: None

    def _refill_dict(self, value: dict[Any, Any]) -> Restore:
        items = {key: self.take(item) for key, item in value.items()}

        def restore() -> None:
            content = {key: item() for key, item in items.items()}
            dict.clear(value)
            dict.update(value, content)

        return restore

    def _tensor(self, tensor: Tensor) -> Restore:
        storage, kept = tensor.detach(), tensor.detach().clone() if not tensor.is_meta else None
        leaf, wants = tensor.is_leaf, tensor.requires_grad
        grad = tensor.grad if leaf else None

        def restore() -> None:
            if tensor.layout == torch.strided and not _same_storage(tensor, storage):
                tensor.data = storage
            if kept is not None:
                storage.copy_(kept)
            if leaf:
                if tensor.requires_grad != wants:
                    tensor.requires_grad_(wants)
                tensor.grad = grad

        return restore


def _size(value: Any) -> int:
    if isinstance(value, Tensor | np.ndarray):
        return value.nbytes
    return len(value) if isinstance(value, list | dict | tuple | set | frozenset | collections.deque) else 0


def _same_storage(a: Tensor, b: Tensor) -> bool:
    alike = a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride()
    return alike and a.device == b.device and a.data_ptr() == b.data_ptr()


def _reset(value: set[Any], kept: set[Any]) -> None:
    value.clear()
    value.update(kept)


def _refill(value: Any, items: list[Any]) -> None:
    value.clear()
    value.extend(items)
