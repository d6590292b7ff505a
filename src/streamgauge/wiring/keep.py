"""Leave a model, and all random states, as they were before a forward pass."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.fx.experimental import _config as fx_config

_TABLES = ("_parameters", "_buffers", "_modules")


@contextmanager
def left_as_it_was(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside; at the end everything back: mode, buffers, attributes, random states, torch's fast path.

    A buffer, parameter or plain attribute that the forward assigns anew is again the same object as before, with the
    values (buffers) that it had; what the forward adds to a module is taken off. Not undone: changes inside lists and
    other containers, and the sizes that lazy modules take on.
    """
    held = [(module, type(module), dict(vars(module)), _tables(module)) for module in model.modules() if _plain(module)]
    modes = [(module, module.training) for module in model.modules() if not _plain(module)]
    buffers = [(b, b.detach().clone()) for b in model.buffers() if not b.is_meta]
    nonzero = fx_config.meta_nonzero_assume_all_nonzero
    fast = torch.backends.mha.get_fastpath_enabled()
    devices = sorted({p.device.index or 0 for p in model.parameters() if p.device.type == "cuda"})
    try:
        for module in model.modules():
            module.training = False
        torch.backends.mha.set_fastpath_enabled(False)
        fx_config.meta_nonzero_assume_all_nonzero = True
        with torch.random.fork_rng(devices=devices), python_random():
            yield
    finally:
        fx_config.meta_nonzero_assume_all_nonzero = nonzero
        torch.backends.mha.set_fastpath_enabled(fast)
        for module, kind, attributes, tables in held:
            if type(module) is kind:
                _put_back(module, attributes, tables)
            else:  # a lazy module that took its sizes became another class; its attributes belong to that
                module.training = attributes["training"]
        for module, training in modes:
            module.training = training
        with torch.no_grad():
            for buffer, before in buffers:
                if not torch.equal(buffer, before):
                    buffer.copy_(before)


def _plain(module: nn.Module) -> bool:
    """Whether a module keeps its entries in plain tables; a scripted one keeps them elsewhere."""
    return all(isinstance(vars(module).get(name), dict) for name in _TABLES)


def _tables(module: nn.Module) -> dict[str, dict[str, Any]]:
    return {name: dict(vars(module)[name]) for name in _TABLES}


def _put_back(module: nn.Module, attributes: dict[str, Any], tables: dict[str, dict[str, Any]]) -> None:
    own = vars(module)
    for name in [name for name in own if name not in attributes]:
        del own[name]
    own.update(attributes)
    for name, before in tables.items():
        now = own[name]
        if now.keys() != before.keys() or any(now[key] is not value for key, value in before.items()):
            now.clear()
            now.update(before)


@contextmanager
def python_random() -> Iterator[None]:
    """The global generators of `random` and numpy put back at the end."""
    before = random.getstate()
    numpy = sys.modules.get("numpy.random")
    drawn = numpy.get_state() if numpy is not None else None
    try:
        yield
    finally:
        random.setstate(before)
        if numpy is not None:
            numpy.set_state(drawn)
