"""What the parameters of a model are, and what one backward pass gives them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from streamgauge.vocabulary import Parameter


@torch.no_grad()
def parameters(model: nn.Module, gradients: Mapping[str, Tensor | None] | None = None) -> tuple[Parameter, ...]:
    """One `Parameter` for each tensor, in the order of `model.named_parameters()`.

    gradients   name -> gradient; None takes what lies in `.grad` now. A parameter that got no gradient keeps None,
                one whose gradient is zero everywhere has grad_rms 0.0: the two mean different faults

    Root mean squares are accumulated in float64: gradients of a deep stack pass 1e-23, where a float32 square is zero.
    Values of a meta tensor are None.
    """
    places: dict[int, list[str]] = defaultdict(list)
    for name, parameter in model.named_parameters(remove_duplicate=False):
        places[id(parameter)].append(name)
    owners = {
        id(p): type(module).__name__ for module in reversed(list(model.modules())) for p in module._parameters.values()
    }
    found = []
    for name, parameter in model.named_parameters():
        gradient = parameter.grad if gradients is None else gradients.get(name)
        found.append(
            Parameter(
                path=name,
                shape=tuple(parameter.shape),
                dtype=str(parameter.dtype).removeprefix("torch."),
                owner=owners.get(id(parameter), ""),
                trainable=parameter.requires_grad,
                rms=_rms(parameter),
                grad_rms=_rms(gradient),
                largest_grad=_largest(gradient),
                shared_with=tuple(other for other in places[id(parameter)] if other != name),
            )
        )
    return tuple(found)


def _values(tensor: Tensor | None) -> Tensor | None:
    if tensor is None or tensor.is_meta or not tensor.numel() or not tensor.is_floating_point():
        return None
    return tensor.detach().coalesce().values() if tensor.is_sparse else tensor.detach()


def _rms(tensor: Tensor | None) -> float | None:
    values = _values(tensor)
    if values is None or tensor is None:
        return None
    wide = torch.float32 if values.device.type == "mps" else torch.float64
    norm = float(torch.linalg.vector_norm(values, dtype=wide))
    return norm / math.sqrt(tensor.numel())


def _largest(tensor: Tensor | None) -> float | None:
    values = _values(tensor)
    if values is None:
        return None
    return float(torch.linalg.vector_norm(values, ord=float("inf"))) if values.numel() else 0.0
