"""Hooks at the taps of a wiring, for the length of one sampled step."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from streamgauge.gauge.hooks import Hook
from streamgauge.gauge.passes import Measured, Pass
from streamgauge.gauge.signals import Site
from streamgauge.gauge.target import modules_by_path, original, uncompiled
from streamgauge.vocabulary import Join, Wiring
from streamgauge.wiring import tensors_of

Listener = tuple[int, int, int, str]


class GaugeWarning(UserWarning):
    """Something that the gauge should have seen and did not; training goes on unharmed."""


def _taps(join: Join) -> dict[str, Any]:
    named = {"stream": join.stream_tap, "branch": join.branch_tap, "out": join.out_tap}
    return {role: tap for role, tap in named.items() if tap is not None}


class Recorder:
    """Attach with `begin` at the start of each forward pass, collect with `finish` after the backward.

    Only calls made while gradients are enabled count, so an evaluation under `no_grad` between two steps leaves no
    trace. With several passes in one step (gradient accumulation) the last one that received a gradient is kept;
    `tokens` adds up over all of them.
    """

    def __init__(self, model: nn.Module, wiring: Wiring) -> None:
        self.model = model
        root = original(model)
        joined = {join.index for join in wiring.joins}
        self._sites = {join.index: Site(join, join.index in joined) for join in wiring.places}
        self._expected = {index: frozenset(_taps(site.join)) for index, site in self._sites.items()}
        self._inputs: dict[str, list[Listener]] = defaultdict(list)
        self._outputs: dict[str, list[Listener]] = defaultdict(list)
        modules = modules_by_path(root)
        for index, site in self._sites.items():
            for role, tap in _taps(site.join).items():
                path = tap.path if tap.path in modules else uncompiled(tap.path)
                if path in modules:
                    listeners = self._inputs if tap.side == "input" else self._outputs
                    listeners[path].append((tap.slot, tap.call, index, role))
        self._modules = {path: modules[path] for path in {**self._inputs, **self._outputs}}
        self._own_root = "" in self._modules and root is model
        self._handles: list[RemovableHandle] = []
        self._passes: list[Pass] = []
        self._counted = 0
        self.trouble = ""

    @property
    def places(self) -> dict[int, str]:
        """Index -> path of all places that the wiring lists."""
        return {index: site.join.path for index, site in self._sites.items()}

    def begin(self, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> None:
        """Open a forward pass of the model with these inputs, attaching the hooks if they are not there yet."""
        if self._passes:
            previous = self._passes[-1]
            previous.close_forward()
            self._counted += previous.tokens
            if previous.has_gradient:
                self._drop(self._passes[:-1])
        self._passes.append(Pass(self._sites, self._expected))
        if not self._handles:
            self._attach()
        if self._own_root:  # the model's own pre-hooks are already running: one added now would come too late
            self._entering("")(self.model, args, kwargs or {})

    def _attach(self) -> None:
        for path, module in self._modules.items():
            if not (path == "" and self._own_root):
                self._handles.append(module.register_forward_pre_hook(Hook(self._entering(path)), with_kwargs=True))
            if path in self._outputs:
                self._handles.append(module.register_forward_hook(Hook(self._leaving(path))))

    def _entering(self, path: str) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if torch.is_grad_enabled() and self._passes:
                calls = self._passes[-1].calls
                call = calls.get(path, 0)
                calls[path] = call + 1
                self._report(self._inputs.get(path, ()), call, (args, kwargs))

        return hook

    def _leaving(self, path: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            if torch.is_grad_enabled() and self._passes:
                self._report(self._outputs[path], self._passes[-1].calls.get(path, 1) - 1, output)

        return hook

    def _report(self, listeners: list[Listener] | tuple[()], call: int, value: Any) -> None:
        wanted = [listener for listener in listeners if listener[1] == call]
        if not wanted:
            return
        try:
            tensors: list[Tensor] = tensors_of(value)
            for slot, _, index, role in wanted:
                if slot < len(tensors) and tensors[slot].is_floating_point():
                    self._passes[-1].see(tensors[slot], index, role)
        except Exception as error:  # a gauge that breaks must not break the training it watches
            if not self.trouble:
                self.trouble = f"{type(error).__name__}: {error}"
                warnings.warn(f"streamgauge could not read a place: {self.trouble}", GaugeWarning, stacklevel=2)

    def finish(self) -> tuple[list[Measured], list[int], int]:
        """End the step: (readings, indices of the places seen, tokens), everything that was attached removed."""
        self.detach()
        if not self._passes:
            return [], [], 0
        kept = next((p for p in reversed(self._passes) if p.has_gradient), self._passes[-1])
        tokens, self._counted = self._counted + self._passes[-1].tokens, 0
        readings, seen = kept.finish(), kept.seen
        self._drop(list(self._passes))
        return readings, seen, tokens

    def _drop(self, passes: list[Pass]) -> None:
        for done in passes:
            done.release()
            self._passes.remove(done)

    def detach(self) -> None:
        """Remove every module hook."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
