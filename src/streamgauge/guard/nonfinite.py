"""A step with a non-finite gradient is skipped, or stops the run by name."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Literal, Self, get_args

import torch
from torch import nn
from torch.optim import Optimizer

from streamgauge.errors import unknown

Policy = Literal["skip", "raise"]


class NonFiniteGradientError(ArithmeticError):
    """The policy "raise" met a gradient that is not finite; the message names the first such parameter."""


class Guard:
    """Stands before `optimizer.step()` from construction until `close()`; usable as a context manager.

    policy "skip"   a step with a NaN or infinite gradient is not taken: its gradients are set to None, which every
                    optimizer of torch passes over, so that parameters, moments and step counts stay as they were
    policy "raise"  NonFiniteGradientError is raised before the step, parameters untouched

    `skipped` lists the skipped steps (counted from 0). The test costs one reduction over the gradients and one
    synchronisation per step.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer, policy: Policy = "skip") -> None:
        if policy not in get_args(Policy):
            raise unknown("policy", policy, get_args(Policy))
        self.policy = policy
        self.skipped: list[int] = []
        self.steps = 0
        self._names = {id(p): name for name, p in model.named_parameters()}
        self._handle = optimizer.register_step_pre_hook(self._before_step)

    def _before_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        params = [p for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
        step, self.steps = self.steps, self.steps + 1
        grads = [p.grad for p in params]
        if not grads or bool(torch.isfinite(torch.stack(torch._foreach_norm(grads, float("inf")))).all()):
            return
        if self.policy == "raise":
            bad = next(p for p in params if p.grad is not None and not torch.isfinite(p.grad).all())
            name = self._names.get(id(bad), "a parameter outside the model")
            raise NonFiniteGradientError(f"step {step}: the gradient of {name} is not finite")
        self.skipped.append(step)
        for p in params:
            p.grad = None

    def close(self) -> None:
        """Step aside; the optimizer is as it was before."""
        self._handle.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
