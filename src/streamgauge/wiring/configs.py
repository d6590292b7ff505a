"""Models from transformers configs: read the file, build the architecture, on the meta device where it is large."""

from __future__ import annotations

import inspect
import json
import os
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from streamgauge.errors import InputError, closest
from streamgauge.wiring.foreign import no_exit, reason, shown

LARGEST_FILE = 10_000_000
"""Bytes of the largest config that is read."""
MOST_LAYERS = 5_000
"""A config with more layers than this is refused: building the modules alone would take minutes."""

Built = tuple[nn.Module, str, list[str]]


def is_file(path: Path) -> bool:
    """Whether there is anything at the path that is not a folder."""
    try:
        return path.exists() and not path.is_dir()
    except (OSError, ValueError):
        return False


def read(path: Path) -> dict[str, Any]:
    """The config in a file. Only regular files of at most `LARGEST_FILE` bytes are read."""
    where = shown(path)
    try:
        data = json.loads(_text(path, where))
    except FileNotFoundError:
        raise InputError(f"{where}: no such file; pass a transformers config.json or a checkpoint folder") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: not JSON at line {error.lineno} ({error.msg})") from None
    except RecursionError:
        raise InputError(f"{where}: nested too deep for a config; pass a transformers config.json") from None
    except (OSError, ValueError) as error:  # UnicodeDecodeError, and integers of thousands of digits
        raise InputError(f"{where}: cannot be read ({reason(error)})") from None
    if not isinstance(data, dict) or not isinstance(data.get("model_type"), str):
        raise InputError(f"{where}: no field 'model_type'; pass a transformers config.json")
    return data


def _text(path: Path, where: str) -> str:
    if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe or a device could be read for ever
        raise InputError(f"{where}: not a regular file; pass a transformers config.json")
    with path.open("rb") as file:
        content = file.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise InputError(
            f"{where}: more than {LARGEST_FILE // 1_000_000} MB, no config; pass a transformers config.json"
        )
    return content.decode("utf-8")


def build(data: dict[str, Any], description: str, largest: int) -> Built:
    """The model of a config, its description and notes; on the meta device above `largest` parameters."""
    try:
        import transformers
    except ImportError:
        raise InputError(f"{description}: needs transformers; pip install 'streamgauge[hf]'") from None
    name, layers = max(_layers(data), key=lambda pair: pair[1], default=("", 0))
    if layers > MOST_LAYERS:
        raise InputError(f"{description}: {name} = {_number(layers)}; at most {MOST_LAYERS} layers are built")
    with _quiet(transformers.utils.logging), no_exit(f"{description}: transformers", "building the model"):
        return _build(transformers, data, description, largest)


def _layers(data: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """The fields that count layers, of parts as well."""
    todo = [data]
    while todo:
        for name, value in todo.pop().items():
            if isinstance(value, dict):
                todo.append(value)
            elif isinstance(value, int) and (name.endswith("layers") or name in ("n_layer", "num_layer")):
                yield shown(name), value


def _number(value: int) -> str:
    return str(value) if value < 10**12 else "more than 10^12"


@contextmanager
def _quiet(log: Any) -> Iterator[None]:
    """What transformers and torch say about odd values in a config is their own business; ours is one line."""
    before = log.get_verbosity()
    log.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.set_verbosity(before)


def _build(transformers: Any, data: dict[str, Any], description: str, largest: int) -> Built:
    kind = data["model_type"]
    known = transformers.models.auto.configuration_auto.CONFIG_MAPPING
    if kind not in known:
        remote = "; its own code (auto_map) is not run" if "auto_map" in data else ""
        raise InputError(f"{description}: unknown model_type {shown(kind)!r}{remote}; {closest(kind, known.keys())}")
    try:
        config = known[kind].from_dict(dict(data))
    except Exception as error:  # configs validate themselves, each in its own way
        raise InputError(f"{description}: not a valid {kind} config ({reason(error)})") from None
    try:
        make = _builder(transformers, config, description)
        with torch.device("meta"):
            model = make(config)
        size = sum(p.numel() for p in model.parameters())
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"{description}: the {kind} model cannot be built from this config ({reason(error)})"
        ) from None
    notes = [f"built as {type(model).__name__} from its config; weights were not read"]
    if size <= largest:
        try:
            model = make(config)
        except Exception as error:
            raise InputError(f"{description}: the {kind} model cannot be built ({reason(error)})") from None
    else:
        notes.append(f"{size / 1e6:,.0f} million parameters on the meta device: without values")
    return model.eval(), description, notes


def _builder(transformers: Any, config: Any, description: str) -> Any:
    """How to build: the architecture that the config names, else the auto class that knows the config."""
    names = getattr(config, "architectures", None)
    for name in names if isinstance(names, list | tuple) else ():
        kind = getattr(transformers, name, None) if isinstance(name, str) else None
        if inspect.isclass(kind) and issubclass(kind, nn.Module):
            return kind
    for name in ("CausalLM", "Seq2SeqLM", "MaskedLM", "SpeechSeq2Seq", "ImageClassification", ""):
        auto = getattr(transformers, f"AutoModelFor{name}" if name else "AutoModel", None)
        if auto is not None and type(config) in auto._model_mapping:
            return auto.from_config
    raise InputError(f"{description}: transformers has no model for {type(config).__name__}")
