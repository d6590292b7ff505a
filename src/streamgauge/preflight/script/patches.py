"""Attributes of other people's modules and classes, replaced for the length of a watch."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]


class Patches:
    """`wrap` replaces a function by one that is told the original; `undo` puts every original back.

    In a forked child (a data loader's worker) the original runs alone.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._undo: list[Callable[[], None]] = []

    def wrap(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        """Call `around(original, *args, **kwargs)` in place of `owner.name`; nothing where owner has no such name."""
        original: Function | None = vars(owner).get(name)
        if original is None:
            return
        plain = original.__func__ if isinstance(original, classmethod | staticmethod) else original

        @functools.wraps(plain)
        def replaced(*args: Any, **kwargs: Any) -> Any:
            if os.getpid() != self._pid:
                return plain(*args, **kwargs)
            return around(plain, *args, **kwargs)

        kind = type(original) if isinstance(original, classmethod | staticmethod) else None
        setattr(owner, name, replaced if kind is None else kind(replaced))
        self._undo.append(lambda: setattr(owner, name, original))

    def after(self, owner: Any, name: str, tell: Callable[..., None]) -> None:
        """Call `tell(*args)` with the positional arguments after `owner.name` has returned."""

        def around(original: Function, *args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            tell(*args)
            return result

        self.wrap(owner, name, around)

    def undo(self) -> None:
        for put_back in reversed(self._undo):
            put_back()
        self._undo.clear()
