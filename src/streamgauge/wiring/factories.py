"""Models from Python code: a module or a factory, found by module path or in a file."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from streamgauge.errors import InputError, closest
from streamgauge.wiring.calls import tensors_of
from streamgauge.wiring.configs import is_file
from streamgauge.wiring.foreign import imports_from, no_exit, reason, shown, usable

Inputs = tuple[Any, ...] | dict[str, Any]


def build(target: str) -> tuple[nn.Module, str, list[str], Inputs | None]:
    """The model that the code gives, its description, notes, and the inputs that come with it."""
    where, _, name = target.rpartition(":")
    target, path = shown(target), Path(where) if where.endswith(".py") else None
    with imports_from(None if path is None or not is_file(path) else path.parent):
        with no_exit(f"{target}: importing {shown(where)}", "returning a model"):
            module = _import(where, path, target)
        with no_exit(f"{target}: {shown(name)}", "returning a model"):
            found = _called(_named(module, name, target, where), shown(name), target)
    return _sorted_out(found, shown(name), target)


def _named(module: Any, name: str, target: str, where: str) -> Any:
    found: Any = module
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            public = [n for n in vars(module) if not n.startswith("_")]
            raise InputError(f"{target}: {shown(where)} has no {shown(name)!r}; {closest(name, public)}") from None
        except Exception as error:  # a property, or a module's own __getattr__
            raise InputError(f"{target}: {shown(name)} cannot be had ({reason(error)})") from None
    return found


def _called(found: Any, name: str, target: str) -> Any:
    if isinstance(found, nn.Module):
        return found
    if not callable(found):
        raise InputError(f"{target}: {name} is {type(found).__name__}, neither a module nor a callable")
    try:
        found = found()
    except TypeError as error:
        raise InputError(f"{target}: {name}() failed ({reason(error)}); it must take no arguments") from None
    except Exception as error:
        raise InputError(f"{target}: {name}() failed ({reason(error)})") from None
    if inspect.iscoroutine(found):
        found.close()
        raise InputError(f"{target}: {name} is async and gave a coroutine; give a plain function that returns a model")
    return found


def _sorted_out(found: Any, name: str, target: str) -> tuple[nn.Module, str, list[str], Inputs | None]:
    notes: list[str] = []
    inputs: Inputs | None = None
    if isinstance(found, tuple | list) and found and isinstance(found[0], nn.Module):
        inputs = _inputs(found[1]) if len(found) == 2 else None
        if inputs is None:
            notes.append(f"{name}() gave {len(found)} values; the first is the model")
        found = found[0]
    if not isinstance(found, nn.Module):
        raise InputError(f"{target}: {name}() gave {type(found).__name__}; it must return a torch.nn.Module")
    try:
        return usable(found, name), target, notes, inputs
    except InputError as error:
        raise InputError(f"{target}: {error}") from None


def _inputs(value: Any) -> Inputs | None:
    """Inputs for the forward, if the second value holds tensors."""
    if isinstance(value, Tensor):
        return (value,)
    if not tensors_of(value):
        return None
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return dict(value)
    return value if type(value) is tuple else None


def _import(where: str, path: Path | None, target: str) -> Any:
    if path is None:
        try:
            return importlib.import_module(where)
        except ModuleNotFoundError as error:
            raise InputError(
                f"{target}: no module {shown(error.name)!r}; run where it can be imported, or give file.py"
            ) from None
        except Exception as error:
            raise InputError(f"{target}: importing {shown(where)} failed ({reason(error)})") from None
    if not is_file(path):
        raise InputError(f"{target}: no such file {shown(where)}")
    if not path.is_file():
        raise InputError(f"{target}: {shown(where)} is not a regular file; give a file of Python")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{target}: {shown(where)} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    taken = path.stem in sys.modules
    sys.modules.setdefault(path.stem, module)
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        if not taken:
            sys.modules.pop(path.stem, None)
        if not isinstance(error, Exception):
            raise
        hint = f"no module {error.name!r}" if isinstance(error, ModuleNotFoundError) else reason(error)
        raise InputError(f"{target}: importing {shown(where)} failed ({hint})") from None
    return module
