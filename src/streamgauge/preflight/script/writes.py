"""Checkpoints that the script would write while it is only rehearsed: left out, and listed."""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from streamgauge.preflight.script.patches import Function, Patches

FOREIGN = (
    ("torch.distributed.checkpoint", "", ("save", "async_save", "save_state_dict")),
    ("safetensors.torch", "", ("save_file", "save_model")),
    ("transformers.modeling_utils", "PreTrainedModel", ("save_pretrained",)),
    ("transformers.tokenization_utils_base", "PreTrainedTokenizerBase", ("save_pretrained",)),
    ("transformers.trainer", "Trainer", ("_save_checkpoint", "save_model", "save_state")),
    ("accelerate.accelerator", "Accelerator", ("save", "save_model", "save_state")),
    ("lightning.fabric.utilities.cloud_io", "", ("_atomic_save",)),
    ("lightning_fabric.utilities.cloud_io", "", ("_atomic_save",)),
)
"""Where the usual libraries write models: module, class, functions. They are wrapped when the script imports them."""


class Writes:
    """Turns the functions that write checkpoints into ones that do nothing, for the rest of the process.

    A save into memory (`io.BytesIO`) goes through: scripts copy models that way.
    """

    def __init__(self, later: Callable[[str, Callable[[ModuleType], None]], None]) -> None:
        self._left_out: Counter[str] = Counter()
        self._patches = Patches()
        for owner in (torch, torch.jit):
            self._patches.wrap(owner, "save", self._save)
        for module, holder, names in FOREIGN:
            later(module, self._wrapping(holder, names))

    def _wrapping(self, holder: str, names: tuple[str, ...]) -> Callable[[ModuleType], None]:
        def wrap(module: ModuleType) -> None:
            owner = getattr(module, holder, None) if holder else module
            for name in names if owner is not None else ():
                self._patches.wrap(owner, name, self._nothing(f"{holder}.{name}" if holder else name))

        return wrap

    def _nothing(self, name: str) -> Callable[..., None]:
        def skip(original: Function, *args: Any, **kwargs: Any) -> None:
            named = [v for v in (*args, *kwargs.values()) if isinstance(v, str | os.PathLike)]
            self._note(name, named[0] if named else None)

        return skip

    def _save(self, original: Function, obj: Any, f: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(f, io.BytesIO):
            return original(obj, f, *args, **kwargs)
        self._note("torch.save", f if isinstance(f, str | os.PathLike) else getattr(f, "name", None))
        return None

    def _note(self, name: str, path: Any) -> None:
        self._left_out[f"{name}({os.fspath(path)})" if isinstance(path, str | os.PathLike) else name] += 1

    def allow(self) -> None:
        """From now on everything is written again."""
        self._patches.undo()

    @property
    def notes(self) -> list[str]:
        """One line on what was not written, if anything was."""
        if not self._left_out:
            return []
        some = [f"{what} x{n}" if n > 1 else what for what, n in self._left_out.most_common(6)]
        more = f" and {len(self._left_out) - 6} more" if len(self._left_out) > 6 else ""
        return [f"not written during the check: {', '.join(some)}{more} (--allow-writes lets them through)"]
