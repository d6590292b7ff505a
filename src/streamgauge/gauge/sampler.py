"""When the model carries hooks: from the first training forward of a sampled step until the step is closed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from streamgauge.gauge.hooks import Hook
from streamgauge.gauge.passes import Measured
from streamgauge.gauge.recorder import Recorder
from streamgauge.gauge.target import Eager, is_compiled, original, wants_early_eager
from streamgauge.gauge.undisturbed import undisturbed
from streamgauge.vocabulary import Wiring
from streamgauge.wiring import read_wiring

Say = Callable[[str, str], None]


class Sampler:
    """`arm` before a step that is to be measured, `collect` at its end; in between one hook waits on the model itself.

    The hooks at the taps are attached by the first forward that runs with gradients, so that an evaluation before it
    meets an untouched model; the first of all reads the wiring, if none was given. `adopt` is told the wiring, `say`
    what could not be seen.
    """

    def __init__(self, model: nn.Module, wiring: Wiring | None, adopt: Callable[[Wiring], None], say: Say) -> None:
        self.model, self._adopt, self._say = model, adopt, say
        self._recorder: Recorder | None = None
        self._root: RemovableHandle | None = None
        self._eager = Eager()
        self._reading = False
        self._unread = wiring is None
        if wiring is not None:
            self._use(wiring)

    @property
    def armed(self) -> bool:
        """Whether the step under way is a sampled one."""
        return self._root is not None

    def arm(self) -> None:
        """Sample the next step."""
        if self._root is None:
            self._root = self.model.register_forward_pre_hook(Hook(self._entering), with_kwargs=True)
            if wants_early_eager(self.model):
                self._eager.enter()

    def disarm(self) -> None:
        """Leave the model as it was."""
        if self._root is not None:
            self._root.remove()
            self._root = None
        if self._recorder is not None:
            self._recorder.detach()
        self._eager.leave()

    def _entering(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._reading or not torch.is_grad_enabled():
            return
        if is_compiled(self.model):
            self._eager.enter()
        if self._unread:
            self._read(args, kwargs)
        if self._recorder is not None:
            self._recorder.begin(args, kwargs)

    def _read(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._reading, self._unread = True, False
        try:
            with undisturbed(self.model):
                wiring = read_wiring(original(self.model), *args, **kwargs)
        except Exception as error:  # the run goes on with the signals that need no wiring
            why = f"{type(error).__name__}: {error}"
            self._say("wiring", f"the wiring could not be read ({why}); nothing is measured inside the model")
        else:
            self._use(wiring)
        finally:
            self._reading = False

    def _use(self, wiring: Wiring) -> None:
        self._recorder = Recorder(self.model, wiring)
        self._adopt(wiring)
        if not wiring.places:
            self._say("places", "the wiring lists no sublayer; nothing is measured inside the model")

    def collect(self) -> tuple[list[Measured], int]:
        """End the sampled step: (readings as 0-d tensors, tokens); says so when places of the wiring were not seen."""
        self.disarm()
        if self._unread:
            self._say("places", "the model's forward did not run with gradients; nothing is measured inside the model")
        if self._recorder is None:
            return [], 0
        measured, seen, tokens = self._recorder.finish()
        places = self._recorder.places
        missing = [f"{index}:{path}" for index, path in places.items() if index not in seen]
        if missing:
            some = ", ".join(missing[:3]) + (" ..." if len(missing) > 3 else "")
            self._say("places", f"{len(places) - len(missing)} of {len(places)} places were seen; missing {some}")
        return measured, tokens
