"""The registry of signals: what can be measured, in which unit, and the function that measures it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from streamgauge.registry import Registry
from streamgauge.vocabulary import Join

Level = Literal["place", "run"]
F = TypeVar("F", bound=Callable[..., Any])

FORWARD = ("stream", "branch", "out")
BACKWARD = ("grad_stream", "grad_out")


@dataclass(frozen=True)
class Site:
    """The place that a signal is asked about: its join, and whether a residual addition happens there at all."""

    join: Join
    joined: bool = True


@dataclass(frozen=True)
class Signal:
    """One thing that is measured.

    level     "place": one number per sublayer, "run": one number for the whole run
    needs     the argument names of `measure`. At a place these are Samples, taken by name: `stream` (entering the
              join), `branch`, `out` (the stream leaving it), `grad_stream` and `grad_out` (the loss gradients of the
              two streams), `site`, or the name of a signal registered before, for its value at the same place
    likes     those of its arguments that have a default and are given where there is one
    measure   returns a 0-d tensor, or None where the signal has no meaning
    """

    name: str
    unit: str
    level: Level
    doc: str
    measure: Callable[..., Any]
    needs: tuple[str, ...]
    likes: tuple[str, ...] = ()

    @property
    def backward(self) -> bool:
        """True when the signal has to wait for a gradient."""
        return any(name in BACKWARD or (name in SIGNALS and SIGNALS[name].backward) for name in self.needs)


SIGNALS: Registry[Signal] = Registry("signal")


def signal(unit: str = "1", level: Level = "place") -> Callable[[F], F]:
    """Register the function below under its own name; its docstring explains the signal."""

    def register(function: F) -> F:
        name, parameters = function.__name__, inspect.signature(function).parameters
        needs = tuple(p for p in parameters if parameters[p].default is inspect.Parameter.empty)
        likes = tuple(p for p in parameters if p not in needs)
        strange = set(parameters) - {*FORWARD, *BACKWARD, "site", *SIGNALS}
        if level == "place" and strange:
            raise ValueError(f"signal {name!r} asks for {sorted(strange)}, which no place offers")
        SIGNALS.add(name, Signal(name, unit, level, inspect.getdoc(function) or "", function, needs, likes))
        return function

    return register
