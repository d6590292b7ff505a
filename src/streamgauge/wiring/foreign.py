"""Run code of others: whatever it raises becomes one line, and what it prints stays out of our output."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.jit._script import RecursiveScriptModule

from streamgauge.errors import InputError

SHOWN = 200
"""A name from outside is told in at most this many characters."""


def shown(name: object) -> str:
    """A path or name on one line that any output can take: odd characters escaped, long ones cut."""
    text = str(name)
    text = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def reason(error: BaseException) -> str:
    """An exception in one short line."""
    if isinstance(error, SystemExit):
        return f"ended the process with sys.exit({'' if error.code is None else shown(repr(error.code))})"
    try:
        text = shown(" ".join(str(error).split())[:160])
    except Exception:  # an exception that cannot be printed still has a name
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@contextmanager
def no_exit(what: str, wanted: str) -> Iterator[None]:
    """Turn what is raised to leave the process (SystemExit, GeneratorExit ...) into an InputError.

    Ordinary exceptions and KeyboardInterrupt pass.
    """
    try:
        yield
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        verb = reason(error) if isinstance(error, SystemExit) else f"raised {reason(error)}"
        raise InputError(f"{what} {verb} instead of {wanted}") from error


def aside() -> AbstractContextManager[Any]:
    """Send what is printed inside to standard error."""
    return contextlib.redirect_stdout(sys.stderr)


@contextmanager
def imports_from(folder: Path | None) -> Iterator[None]:
    """Import from a folder first, as `python file.py` does; None: the current one, as `python -m` does.

    Afterwards the folder stays last on the path, for imports inside a forward.
    """
    entry = "" if folder is None else str(folder.resolve())
    sys.path.insert(0, entry)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(entry)
        if entry not in sys.path:
            sys.path.append(entry)


def usable(model: object, where: str) -> nn.Module:
    """The model, if its operations can be seen; `where` begins the error."""
    if not isinstance(model, nn.Module):
        raise InputError(f"{where} a torch.nn.Module, not {type(model).__name__}")
    kind = type(model).__name__
    try:
        inner = list(model.modules())
        list(model.parameters()), list(model.buffers())
    except Exception as error:
        raise InputError(
            f"{kind} is no complete module ({reason(error)}); call super().__init__() first in each __init__"
        ) from None
    if isinstance(model, torch.jit.ScriptModule):
        raise InputError("a scripted or traced module shows no operations; pass the nn.Module that it was made from")
    for module in inner:
        if isinstance(module, RecursiveScriptModule):
            raise InputError(f"{kind} holds a scripted module, which takes no hooks; leave that unscripted")
    return model


def watched(model: nn.Module) -> nn.Module:
    """The module whose signature counts: without the wrapper of torch.compile or of data parallelism."""
    while True:
        table = vars(model).get("_modules", {})
        parallel = isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel)
        inner = table.get("_orig_mod") or (table.get("module") if parallel else None)
        if inner is None:
            return model
        model = inner
