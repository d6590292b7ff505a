"""Optimizer recipe of a scheme: parameter groups and warm-up advice."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import nn

from streamgauge.errors import InputError
from streamgauge.nn.schemes import Scheme


@dataclass(frozen=True)
class Advice:
    """How to start the run: `warmup` optimizer steps of linear warm-up, and one line for each reason."""

    warmup: int
    notes: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.notes)


def recipe(net: nn.Module, lr: float, weight_decay: float = 0.1) -> tuple[list[dict[str, Any]], Advice]:
    """Parameter groups for torch.optim.AdamW and its kin, and the advice that goes with the net's scheme.

    Weight decay acts on matrices and embeddings, not on gains, biases and other tensors of one dimension: decay pulls
    a gain to 0, not to its identity 1. Frozen parameters are left out, a tied weight is listed once. Each group
    has a "name" beside "params", "lr" and "weight_decay".

    Errors: InputError for a model without a scheme, for an lr that is not positive, for a negative weight decay.
    """
    scheme = getattr(net, "scheme", None)
    if not isinstance(scheme, Scheme):
        raise InputError(f"recipe needs a model of streamgauge.nn, not {type(net).__name__}")
    if not _number(lr) or lr <= 0:
        raise InputError(f"lr must be a positive number, not {lr!r}; 3e-4 is a usual start")
    if not _number(weight_decay) or weight_decay < 0:
        raise InputError(f"weight_decay must be a number of at least 0, not {weight_decay!r}")
    trained = [p for p in net.parameters() if p.requires_grad]
    matrices = [p for p in trained if p.dim() > 1]
    others = [p for p in trained if p.dim() <= 1]
    groups = [
        {"name": "matrices", "params": matrices, "lr": lr, "weight_decay": weight_decay},
        {"name": "gains and biases", "params": others, "lr": lr, "weight_decay": 0.0},
    ]
    steps = f"warm up over {scheme.warmup} steps" if scheme.warmup else "no warm-up needed"
    notes = [f"{steps}: {scheme.warmup_reason}"]
    if scheme.warmup:
        notes.append(f"in a run of under {10 * scheme.warmup} steps, warm up over a tenth of it")
    notes.append(f"no weight decay on {len(others)} gains, biases and other one-dimensional tensors")
    return [group for group in groups if group["params"]], Advice(scheme.warmup, tuple(notes))


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
