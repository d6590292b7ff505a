"""Hooks that stay behind when the module they stand on is copied or saved."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any


class Hook:
    """Calls `what`; its copy and its pickle are a callable that takes anything and does nothing.

    So `copy.deepcopy(model)`, `torch.save(model, file)` and the pickling of a model for another process work on a
    sampled step, and neither the copy nor the file knows of the gauge: it loads where streamgauge is not installed.
    """

    def __init__(self, what: Callable[..., None]) -> None:
        self.what = what

    def __call__(self, *given: Any) -> None:
        self.what(*given)

    def __reduce__(self) -> tuple[Any, ...]:
        # the standard library's own no-op of any number of arguments: pickled by name, needs no class of ours
        return getattr, (nullcontext(), "__exit__")
