"""The module that makes a branch's output: the matrix to scale when the branch is to add less."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from streamgauge.errors import InputError
from streamgauge.fix.base import Patient
from streamgauge.vocabulary import Join, Tap
from streamgauge.wiring import tensors_of
from streamgauge.wiring.keep import left_as_it_was


@dataclass(frozen=True)
class Projection:
    """path of the module, and the parameters of which its output is a linear function."""

    path: str
    parameters: tuple[nn.Parameter, ...]


def projections(patient: Patient, joins: Iterable[Join]) -> list[Projection]:
    """For each join the linear module whose output is what its branch adds; a shared module once.

    Found by values, in one forward in eval mode: the output of a Linear (or transformers' Conv1D, or the output
    projection of MultiheadAttention) that holds the same numbers as the tensor at the join's branch tap, in any layout.
    Raises InputError that names the first branch whose output no such module makes (a norm or a gate ends it).
    """
    joins = tuple(joins)
    for join in joins:
        if join.branch_tap is None:
            raise _none(join)
    taps = [join.branch_tap for join in joins if join.branch_tap is not None]
    made, seen = _forward(patient, taps)
    found: dict[int, Projection] = {}
    for join, tap in zip(joins, taps, strict=True):
        value = seen.get(tap)
        projection = next((p for p, out in reversed(made) if value is not None and _same(out, value)), None)
        if projection is None:
            raise _none(join)
        found.setdefault(id(projection.parameters[0]), projection)
    return list(found.values())


def _forward(patient: Patient, taps: Iterable[Tap]) -> tuple[list[tuple[Projection, Tensor]], dict[Tap, Tensor]]:
    made: list[tuple[Projection, Tensor]] = []
    seen: dict[Tap, Tensor] = {}
    wanted: dict[str, list[Tap]] = {}
    for tap in taps:
        wanted.setdefault(tap.path, []).append(tap)
    with ExitStack() as stack:
        for path, module in patient.model.named_modules():
            projection = _projection(path, module)
            if projection is not None:
                stack.callback(module.register_forward_hook(_note(made, projection)).remove)
            if path in wanted:
                stack.callback(module.register_forward_hook(_watch(seen, wanted[path]), with_kwargs=True).remove)
        args, kwargs = patient.call()
        stack.enter_context(left_as_it_was(patient.model))
        patient.model(*args, **kwargs)
    return made, seen


def _note(made: list[tuple[Projection, Tensor]], projection: Projection) -> Callable[..., None]:
    def hook(module: nn.Module, args: Any, output: Any) -> None:
        made.append((projection, tensors_of(output)[0].detach().clone()))

    return hook


def _watch(seen: dict[Tap, Tensor], taps: list[Tap]) -> Callable[..., None]:
    calls = 0

    def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        nonlocal calls
        for tap in taps:
            tensors = tensors_of((args, kwargs) if tap.side == "input" else output)
            if tap.call == calls and tap.slot < len(tensors):
                seen[tap] = tensors[tap.slot].detach().clone()
        calls += 1

    return hook


def _projection(path: str, module: nn.Module) -> Projection | None:
    holder = module.out_proj if isinstance(module, nn.MultiheadAttention) else module
    if not isinstance(holder, nn.Linear) and type(holder).__name__ != "Conv1D":
        return None
    inner = f"{path}.out_proj" if holder is not module else path
    return Projection(inner, tuple(p for p in holder.parameters(recurse=False)))


def _same(one: Tensor, other: Tensor) -> bool:
    if one.numel() != other.numel() or one.dtype != other.dtype:
        return False
    return torch.equal(one, other) or torch.equal(one.flatten().sort().values, other.flatten().sort().values)


def _none(join: Join) -> InputError:
    return InputError(
        f"the output projection of sublayer {join.index} ({join.path or 'in the model itself'}) was not found: its "
        "branch does not end in a Linear; scale it by hand"
    )
