"""What to differentiate: the user's loss, or a random direction in the model's output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from streamgauge.errors import InputError
from streamgauge.wiring import tensors_of


class Inputs(NamedTuple):
    """The positional and keyword arguments of one forward pass."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


class _ForwardReachedError(BaseException):
    """Ends the user's loss at the model's door; no Exception, so that no handler of theirs catches it."""


def inputs_of(model: nn.Module, loss_fn: Callable[[Any], Tensor], batch: Any) -> Inputs:
    """What `loss_fn(batch)` passes to the model at its first call; the model itself does not run.

    Raises InputError when the loss is computed without calling the model.
    """
    seen: list[Inputs] = []

    def stop(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen.append(Inputs(args, dict(kwargs)))
        raise _ForwardReachedError

    handle = model.register_forward_pre_hook(stop, with_kwargs=True, prepend=True)
    try:
        loss_fn(batch)
    except _ForwardReachedError:
        pass
    finally:
        handle.remove()
    if not seen:
        raise InputError("loss_fn(batch) returned without calling the model; pass the model that the loss calls")
    return seen[0]


def random_direction(model: nn.Module, inputs: Inputs, seed: int = 0) -> Callable[[], Tensor]:
    """sum(g * output) / sqrt(numel), g standard normal: a loss whose gradient at the output is white noise.

    It shows how any gradient of the output travels back, whatever the task. The output is `logits`,
    `last_hidden_state`, or the first floating tensor that carries a gradient.
    """

    def loss() -> Tensor:
        output = model(*inputs.args, **inputs.kwargs)
        if isinstance(output, Mapping):
            output = output.get("logits", output.get("last_hidden_state", output))
        carriers = [t for t in tensors_of(output) if t.is_floating_point() and t.requires_grad]
        if not carriers:
            raise InputError("the model's output carries no gradient; pass a model with parameters that require one")
        first = carriers[0].float()
        noise = torch.randn(first.shape, generator=torch.Generator().manual_seed(seed)).to(first.device)
        value: Tensor = (first * noise).sum() / first.numel() ** 0.5
        return value

    return loss
