"""Which of the script's models are watched, each by its own gauge, and which is judged in the end."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from streamgauge.gauge import Gauge
from streamgauge.gauge.target import original
from streamgauge.preflight.gather import parameters
from streamgauge.preflight.objective import Inputs
from streamgauge.preflight.script.calls import Method, methods, owners
from streamgauge.preflight.script.optimizers import Track
from streamgauge.vocabulary import Origin, Parameter

MOST = 4
"""Models watched at a time."""
LARGE = 0.5
"""A model that holds this share of its optimizer's parameters is watched from its first call on."""
NEARLY_ALL = 0.9
"""With less than this share, a caller that holds more of them is looked for."""


PATIENCE = 4
"""Steps after which a method that was to be watched and is not called is given up."""


class Watched:
    """A model, the optimizer that steps it, and the gauge on it."""

    def __init__(self, model: nn.Module, track: Track, optimizer: Optimizer, gauge: Gauge) -> None:
        self.model, self.track, self.optimizer, self.gauge = model, track, optimizer, gauge
        self.steps = 0
        self.unseen_losses = 0
        self.first: Inputs | None = None
        self.inputs: Inputs | None = None
        self.facts: dict[str, object] = {}
        self.notes: list[str] = []
        self.origin: Origin | None = None
        self.parameters: tuple[Parameter, ...] = ()
        self.own = list(model.parameters())
        self.size = sum(p.numel() for p in self.own)

    @property
    def name(self) -> str:
        return name_of(self.model)

    def look(self) -> None:
        """Read the parameters with the gradients that they hold now, once: at the first step, before clipping."""
        if not self.parameters:
            self.parameters = parameters(original(self.model))

    @torch.no_grad()
    def step(self, loss: Tensor | None, norm: Tensor | None) -> None:
        """Close a step of the gauge."""
        self.unseen_losses += loss is None
        self.gauge.step(float("nan") if loss is None else loss.detach(), grad_norm=norm)
        self.steps += 1


def name_of(model: nn.Module) -> str:
    """The class of a model as its author wrote it."""
    inner = model.owner if isinstance(model, Method) else original(model)
    return type(inner).__name__


class Waiting(NamedTuple):
    """A model that holds only `covered` parameters of an optimizer; callers: (module, method), the innermost first."""

    module: nn.Module
    track: Track
    callers: list[tuple[nn.Module, str]]
    covered: int


class Roster:
    """Meets every root call; admits the models that an optimizer trains.

    attach   makes the gauge of a model
    one      only one model can be watched: its share is taken of the parameters of all optimizers
    """

    def __init__(self, tracks: Callable[[], list[Track]], attach: Callable[[nn.Module, Optimizer], Gauge], one: bool):
        self._tracks, self._attach, self._one = tracks, attach, one
        self.watched: list[Watched] = []
        self._others: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()
        self._known: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._waiting: list[Waiting] = []

    def meet(self, module: nn.Module) -> Watched | None:
        """A root call; the model's entry if it is watched."""
        if module in self._known:
            return next((w for w in self.watched if w.model is module), None)
        own = _sizes(module)
        tracks = self._tracks() if own else []
        shares = [(_overlap(own, track.sizes()), track) for track in tracks]
        covered, track = max(shares, key=lambda pair: pair[0], default=(0, None))
        if own and (track is None or not covered):  # perhaps its optimizer is yet to be made
            self._others[module] = sum(own.values())
            return None
        self._known.add(module)
        if track is None:
            return None
        self._others.pop(module, None)
        whole = sum(size for t in tracks for size in t.sizes().values()) if self._one else sum(track.sizes().values())
        callers = owners(module) if covered < NEARLY_ALL * whole else []
        if covered >= LARGE * whole and not callers:
            return self._admit(module, track)
        self._waiting.append(Waiting(module, track, callers, covered))
        return None

    def _admit(self, module: nn.Module, track: Track) -> Watched | None:
        optimizer = track.ref()
        if optimizer is None or len(self.watched) >= (1 if self._one else MOST):
            self._others[module] = sum(_sizes(module).values())
            return None
        entry = Watched(module, track, optimizer, self._attach(module, optimizer))
        self.watched.append(entry)
        return entry

    def settle(self, track: Track) -> None:
        """At a step of an optimizer whose models were too small to be watched at once.

        The method that calls them, and holds more of the parameters, is watched from its next call on; where there is
        none, or it is not called again, the largest of them.
        """
        mine = [entry for entry in self._waiting if entry.track is track]
        if not mine:
            return
        track.settled += 1
        if self._one and track.settled < PATIENCE and any(not other.steps for other in self._tracks()):
            return  # a larger one may be stepped yet
        if not any(w.track is track for w in self.watched):
            largest = max(mine, key=lambda entry: entry.covered)
            if track.adopted is None:
                track.adopted = self._adopt(largest)
            if track.adopted and track.settled < PATIENCE:
                return
            self._admit(largest.module, track)
        self._waiting = [entry for entry in self._waiting if entry.track is not track]
        for entry in mine:
            if all(entry.module is not w.model for w in self.watched):
                self._others[entry.module] = entry.covered

    def _adopt(self, waiting: Waiting) -> bool:
        running = {(id(owner), name) for owner, name in methods()}
        for owner, name in reversed(waiting.callers):  # the outermost that is called anew at every step
            if (id(owner), name) not in running and _overlap(_sizes(owner), waiting.track.sizes()) > waiting.covered:
                Method(owner, name).install()
                return True
        return False

    def of(self, track: Track) -> list[Watched]:
        """The models that an optimizer's steps close."""
        return [entry for entry in self.watched if entry.track is track]

    @property
    def others(self) -> list[tuple[str, int]]:
        """(class, trainable parameters) of the models that are not judged and are no part of the one that is."""
        judged = self.judged
        parts = set(judged.model.modules()) if judged is not None else set()
        rest = {w.model: w.size for w in self.watched if w is not judged} | dict(self._others)
        return [(name_of(module), size) for module, size in rest.items() if module not in parts]

    @property
    def judged(self) -> Watched | None:
        """The model stepped most, of those the largest."""
        return max(self.watched, key=lambda entry: (entry.steps, entry.size), default=None)


def _sizes(module: nn.Module) -> dict[int, int]:
    return {id(p): p.numel() for p in module.parameters() if p.requires_grad}


def _overlap(own: dict[int, int], theirs: dict[int, int]) -> int:
    return sum(size for name, size in own.items() if name in theirs)
