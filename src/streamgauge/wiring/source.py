"""Build the model that a target names: a preset, a transformers config, a checkpoint folder, or a factory.

Only configs are read: weights are not loaded, nothing is downloaded, and code from checkpoints does not run.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from streamgauge.errors import InputError, closest
from streamgauge.wiring.forward import reason
from streamgauge.wiring.presets import PRESETS


@dataclass(frozen=True)
class Source:
    """A model that was built, one line that says from what, and notes on what was assumed."""

    model: nn.Module
    description: str
    notes: list[str] = field(default_factory=list)


def load_model(target: str, *, largest: int = 0) -> Source:
    """The model that `target` names.

    target    a preset (`gpt2`, `llama-3-8b` ...), a transformers `config.json` or a folder that holds one,
              `module.path:factory` or `file.py:factory` (a module, or a callable that returns one)
    largest   a model that comes from a config gets fresh weights when it has at most this many parameters, and is
              built on the meta device otherwise; 0: always on meta

    Raises InputError, one line, for a target that cannot be used.
    """
    if target in PRESETS:
        kind, kwargs = PRESETS[target]
        return _from_config({"model_type": kind, **kwargs}, f"preset {target}", largest)
    path = Path(target)
    if path.is_dir():
        path = path / "config.json"
        if not path.is_file():
            raise InputError(f"{target}: the folder holds no config.json; pass a checkpoint folder or a config file")
    if path.suffix == ".json":
        return _from_config(_read_json(path), str(target), largest)
    if ":" in target:
        return _from_factory(target)
    raise InputError(
        f"unknown target {target!r}: neither a preset, a config.json, a folder, module.path:factory nor "
        f"file.py:factory; {closest(target, PRESETS)}"
    )


# -- configs ---------------------------------------------------------------------------------------------------


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; pass a transformers config.json or a checkpoint folder") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({reason(error)})") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: not JSON at line {error.lineno} ({error.msg})") from None
    if not isinstance(data, dict) or not isinstance(data.get("model_type"), str):
        raise InputError(f"{path}: no field 'model_type'; pass a transformers config.json")
    return data


def _from_config(data: dict[str, Any], description: str, largest: int) -> Source:
    try:
        import transformers
    except ImportError:
        raise InputError(f"{description}: needs transformers; pip install 'streamgauge[hf]'") from None
    with _quiet(transformers.utils.logging):
        return _build(transformers, data, description, largest)


@contextmanager
def _quiet(log: Any) -> Iterator[None]:
    """What transformers says about odd values in a config is its own business; ours is one line."""
    before = log.get_verbosity()
    log.set_verbosity_error()
    try:
        yield
    finally:
        log.set_verbosity(before)


def _build(transformers: Any, data: dict[str, Any], description: str, largest: int) -> Source:
    kind = data["model_type"]
    known = transformers.models.auto.configuration_auto.CONFIG_MAPPING
    if kind not in known:
        remote = "; its own code (auto_map) is not run" if "auto_map" in data else ""
        raise InputError(f"{description}: unknown model_type {kind!r}{remote}; {closest(kind, known.keys())}")
    try:
        config = known[kind].from_dict(dict(data))
    except Exception as error:  # configs validate themselves, each in its own way
        raise InputError(f"{description}: not a valid {kind} config ({reason(error)})") from None
    build = _builder(transformers, config, description)
    try:
        with torch.device("meta"):
            model = build(config)
    except Exception as error:
        raise InputError(
            f"{description}: the {kind} model cannot be built from this config ({reason(error)})"
        ) from None
    size = sum(p.numel() for p in model.parameters())
    notes = [f"built as {type(model).__name__} from its config; weights were not read"]
    if size <= largest:
        try:
            model = build(config)
        except Exception as error:
            raise InputError(f"{description}: the {kind} model cannot be built ({reason(error)})") from None
    else:
        notes.append(f"{size / 1e6:,.0f} million parameters on the meta device: without values")
    return Source(model.eval(), description, notes)


def _builder(transformers: Any, config: Any, description: str) -> Any:
    """How to build: the architecture that the config names, else the auto class that knows the config."""
    names = getattr(config, "architectures", None) or []
    for name in names:
        kind = getattr(transformers, name, None)
        if inspect.isclass(kind) and issubclass(kind, nn.Module):
            return kind
    for name in ("CausalLM", "Seq2SeqLM", "MaskedLM", "SpeechSeq2Seq", "ImageClassification", ""):
        auto = getattr(transformers, f"AutoModelFor{name}" if name else "AutoModel", None)
        if auto is not None and type(config) in auto._model_mapping:
            return auto.from_config
    raise InputError(f"{description}: transformers has no model for {type(config).__name__}")


# -- factories -------------------------------------------------------------------------------------------------


def _from_factory(target: str) -> Source:
    where, _, name = target.rpartition(":")
    module = _import(where, target)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            public = [n for n in vars(module) if not n.startswith("_")]
            raise InputError(f"{target}: {where} has no {name!r}; {closest(name, public)}")
        found = getattr(found, part)
    notes: list[str] = []
    if not isinstance(found, nn.Module):
        if not callable(found):
            raise InputError(f"{target}: {name} is {type(found).__name__}, neither a module nor a callable")
        try:
            found = found()
        except TypeError as error:
            raise InputError(f"{target}: {name}() failed ({reason(error)}); it must take no arguments") from None
        except Exception as error:
            raise InputError(f"{target}: {name}() failed ({reason(error)})") from None
    if isinstance(found, tuple | list) and found and isinstance(found[0], nn.Module):
        notes.append(f"{name}() gave {len(found)} values; the first is the model")
        found = found[0]
    if not isinstance(found, nn.Module):
        raise InputError(f"{target}: {name}() gave {type(found).__name__}; it must return a torch.nn.Module")
    return Source(found, target, notes)


def _import(where: str, target: str) -> Any:
    try:
        if where.endswith(".py"):
            path = Path(where)
            if not path.is_file():
                raise InputError(f"{target}: no such file {where}")
            spec = importlib.util.spec_from_file_location(path.stem, path)
            if spec is None or spec.loader is None:
                raise InputError(f"{target}: {where} cannot be imported")
            module = importlib.util.module_from_spec(spec)
            sys.modules.setdefault(path.stem, module)
            spec.loader.exec_module(module)
            return module
        if "" not in sys.path:
            sys.path.insert(0, "")
        return importlib.import_module(where)
    except InputError:
        raise
    except ModuleNotFoundError as error:
        raise InputError(f"{target}: no module {error.name!r}; run where it can be imported, or give file.py") from None
    except Exception as error:
        raise InputError(f"{target}: importing {where} failed ({reason(error)})") from None
