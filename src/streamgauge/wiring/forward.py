"""Run one forward pass under the recorder and leave the model as it was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from streamgauge.errors import InputError
from streamgauge.wiring.calls import tensors_of
from streamgauge.wiring.foreign import no_exit, reason, usable
from streamgauge.wiring.graph import Graph
from streamgauge.wiring.keep import left_as_it_was
from streamgauge.wiring.record import Recorder


def record(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Graph, list[str]]:
    """The graph of one forward pass, and notes on what was assumed; inputs are guessed when there are none."""
    usable(model, "read_wiring takes")
    if args or kwargs:
        try:
            return _record(model, args, kwargs)
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"{type(model).__name__} raised on these inputs ({reason(error)}); pass inputs that its forward takes"
            ) from error
    from streamgauge.wiring.inputs import guesses, none_fits, said

    first: Exception | None = None
    for guess in guesses(model):
        try:
            graph, notes = _record(model, (), guess)
            return graph, [said(guess), *notes]
        except InputError:
            raise
        except Exception as error:  # whatever a foreign model raises on a wrong guess
            first = first or error
    raise none_fits(model, first) from first


def _record(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Graph, list[str]]:
    recorder = Recorder()
    for tensor in [*model.parameters(), *model.buffers()]:
        recorder.know(tensor)
    for tensor in tensors_of((args, kwargs)):
        recorder.feed(tensor)
    with left_as_it_was(model), torch.no_grad(), recorder.log.attached(model), _Dropouts(recorder), recorder:
        with no_exit(f"the forward of {type(model).__name__}", "returning a tensor"):
            output = model(*args, **kwargs)
        outputs = [t for t in tensors_of(output) if t.is_floating_point()]
        if not outputs:
            raise InputError(
                f"the forward of {type(model).__name__} returned no tensor of floats; pass the module that computes "
                "the features"
            )
        ids = tuple(recorder.touch(t) for t in outputs)
        primary = recorder.touch(_primary(output, outputs))
    notes = ["control flow that asks for values was guessed on the meta device"] if recorder.guesses else []
    return Graph(recorder.nodes, recorder.log, ids, primary), notes


def _primary(output: Any, outputs: list[Tensor]) -> Tensor:
    """`logits`, else `last_hidden_state`, else the first tensor."""
    for name in ("logits", "last_hidden_state"):
        value = output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)
        if isinstance(value, Tensor):
            return value
    return outputs[0]


class _Dropouts(TorchFunctionMode):
    """In eval mode dropout hands its input through; recorded as a step, so that hooks tell before from after."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in _DROPOUTS and isinstance(result, Tensor) and result is args[0]:
            result = self.recorder.dropout(result)
        return result


_DROPOUTS = frozenset(
    {
        nn.functional.dropout,
        nn.functional.alpha_dropout,
        nn.functional.feature_alpha_dropout,
        nn.functional.dropout1d,
        nn.functional.dropout2d,
        nn.functional.dropout3d,
    }
)
