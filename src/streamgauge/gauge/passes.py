"""One forward pass on a sampled step: what the taps have seen so far, turned into readings as soon as it suffices."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from streamgauge.gauge.sample import Sample, sample
from streamgauge.gauge.signals import FORWARD, SIGNALS, Signal, Site, retention_total

Measured = tuple[str, int, Tensor]
REMEMBERED = 8


class _Seen:
    """A tensor that a tap has met, its sample, and the places whose gradient its hook reports to."""

    def __init__(self, tensor: Tensor, taken: Sample) -> None:
        self.ref = weakref.ref(tensor)
        self.taken = taken
        self.targets: list[tuple[int, str]] = []


class Pass:
    """The samples of one forward pass and, once it has run, of its backward.

    Forward signals are evaluated when the last tap of a place has reported, after which the place's tokens are
    dropped: memory stays that of a few places whatever the depth. Nothing is copied to the host.
    """

    def __init__(self, sites: dict[int, Site], taps: dict[int, frozenset[str]]) -> None:
        self.calls: dict[str, int] = {}
        self.tokens = 0
        self.has_gradient = False
        self._sites, self._taps = sites, taps
        self._samples: dict[int, dict[str, Sample]] = {index: {} for index in sites}
        self._measured: dict[int, dict[str, Tensor]] = {index: {} for index in sites}
        self._recent: OrderedDict[tuple[int, int], _Seen] = OrderedDict()
        self._handles: list[RemovableHandle] = []
        self._forward_done: set[int] = set()

    def see(self, tensor: Tensor, index: int, role: str) -> None:
        """Note that `tensor` is the `role` (stream, branch or out) of place `index`, as it stands now."""
        seen = self._remember(tensor)
        samples = self._samples[index]
        samples[role] = seen.taken
        if role != "branch" and tensor.requires_grad:
            if not seen.targets:
                hook = self._gradient_hook(seen.targets)
                self._handles.append(tensor.register_hook(hook))  # type: ignore[no-untyped-call]
            seen.targets.append((index, f"grad_{role}"))
        if self._taps[index] <= samples.keys():
            self._measure_forward(index)

    def _remember(self, tensor: Tensor) -> _Seen:
        # out of one join and stream of the next are the same tensor: measure it once, unless it changed in place
        key = (id(tensor), tensor._version)
        seen = self._recent.get(key)
        if seen is None or seen.ref() is not tensor:
            seen = self._recent[key] = _Seen(tensor, sample(tensor))
            if not self.tokens:
                self.tokens = tensor.numel() // tensor.shape[-1]
            if len(self._recent) > REMEMBERED:
                self._recent.popitem(last=False)
        return seen

    def _gradient_hook(self, targets: list[tuple[int, str]]) -> Callable[[Tensor], None]:
        def keep(gradient: Tensor) -> None:
            taken = sample(gradient, tokens=False)
            self.has_gradient = True
            for index, role in targets:
                self._samples[index][role] = taken

        return keep

    def _measure_forward(self, index: int) -> None:
        self._forward_done.add(index)
        self._measure(index, [s for s in SIGNALS.values() if s.level == "place" and not s.backward])
        samples = self._samples[index]
        for role in FORWARD:
            if role in samples:
                samples[role] = samples[role].bare

    @torch.no_grad()
    def _measure(self, index: int, signals: list[Signal]) -> None:
        measured = self._measured[index]
        offered: dict[str, Sample | Site | Tensor] = {**self._samples[index], **measured, "site": self._sites[index]}
        for signal in signals:
            if all(name in offered for name in signal.needs):
                wanted = [*signal.needs, *(name for name in signal.likes if name in offered)]
                value = signal.measure(**{name: offered[name] for name in wanted})
                if value is not None:
                    measured[signal.name] = offered[signal.name] = value

    def close_forward(self) -> None:
        """Forget the tensors seen last: the forward pass is over."""
        self._recent.clear()

    def release(self) -> None:
        """Remove the hooks on this pass's tensors."""
        self.close_forward()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    @property
    def seen(self) -> list[int]:
        """The places of which every tap that the wiring lists has reported, in execution order."""
        return [index for index, taps in self._taps.items() if taps and taps <= self._samples[index].keys()]

    def finish(self) -> list[Measured]:
        """All readings of this pass as 0-d tensors on the device, the hooks on its tensors removed."""
        self.release()
        for index, samples in self._samples.items():
            if samples and index not in self._forward_done:
                self._measure_forward(index)
            self._measure(index, [s for s in SIGNALS.values() if s.level == "place" and s.backward])
        readings = [(name, index, value) for index, values in self._measured.items() for name, value in values.items()]
        if self._sites:
            order = sorted(self._sites)
            first, last = self._samples[order[0]].get("grad_stream"), self._samples[order[-1]].get("grad_out")
            if first is not None and last is not None:
                readings.append(("retention_total", -1, retention_total(first, last)))
        return readings
