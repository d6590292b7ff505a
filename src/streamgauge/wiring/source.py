"""Build the model that a target names: a preset, a transformers config, a checkpoint folder, or a factory.

Only configs are read: weights are not loaded, nothing is downloaded, and code from checkpoints does not run.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from streamgauge.errors import InputError, closest
from streamgauge.wiring import configs, factories
from streamgauge.wiring.foreign import aside, reason, shown
from streamgauge.wiring.presets import PRESETS


@dataclass(frozen=True)
class Source:
    """A model that was built, one line that says from what, notes on what was assumed, and its inputs if it has any.

    inputs   what a factory gave beside the model: positional inputs as a tuple, keyword inputs as a dict
    """

    model: nn.Module
    description: str
    notes: list[str] = field(default_factory=list)
    inputs: tuple[Any, ...] | dict[str, Any] | None = None


def load_model(target: str | os.PathLike[str], *, largest: int = 0) -> Source:
    """The model that `target` names.

    target    a preset (`gpt2`, `llama-3-8b` ...), a transformers `config.json` or a folder that holds one,
              `module.path:factory` or `file.py:factory` (a module, or a callable without arguments that returns one,
              or the pair of a module and its inputs: a tensor, a tuple of positional or a dict of keyword inputs)
    largest   a model that comes from a config gets fresh weights when it has at most this many parameters, and is
              built on the meta device otherwise; 0: always on meta

    Code of a factory imports from its file's folder, or from the current one. What it prints goes to standard error.
    Raises InputError, one line, for a target that cannot be used.
    """
    target = os.fspath(target)
    with aside():
        if target in PRESETS:
            kind, kwargs = PRESETS[target]
            return Source(*configs.build({"model_type": kind, **kwargs}, f"preset {target}", largest))
        path = Path(target)
        if _is_folder(path):
            path = path / "config.json"
            if not configs.is_file(path):
                raise InputError(
                    f"{shown(target)}: the folder holds no config.json; pass a checkpoint folder or a config file"
                )
        if path.suffix == ".json":
            return Source(*configs.build(configs.read(path), shown(target), largest))
        if ":" in target:
            return Source(*factories.build(target))
    raise InputError(
        f"unknown target {shown(target)!r}: neither a preset, a config.json, a folder, module.path:factory nor "
        f"file.py:factory; {closest(target, PRESETS)}"
    )


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError) as error:  # too long, or characters that no path has
        raise InputError(f"{shown(path)}: not a path ({reason(error)})") from None
