"""The registry of remedies and the one function that applies them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from streamgauge.errors import InputError
from streamgauge.registry import Registry
from streamgauge.vocabulary import Finding, Wiring
from streamgauge.wiring import guess_inputs, read_wiring, tensors_of

Inputs = tuple[Any, ...] | dict[str, Any]


@dataclass(frozen=True)
class Patient:
    """The model to change, its optimizer where one is given, and what its forward takes (None: guessed)."""

    model: nn.Module
    optimizer: Optimizer | None = None
    inputs: Inputs | None = None

    def wiring(self) -> Wiring:
        """The wiring, from the given inputs, else from guessed ones."""
        args, kwargs = self.call()
        return read_wiring(self.model, *args, **kwargs)

    def call(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments of one forward."""
        if self.inputs is None:
            args, kwargs, _ = guess_inputs(self.model)
            return args, kwargs
        return ((), self.inputs) if isinstance(self.inputs, dict) else (self.inputs, {})

    def loss(self) -> Tensor:
        """sum(g * output), g standard normal from seed 0: its gradient shows how any gradient travels back."""
        args, kwargs = self.call()
        tensors = tensors_of(self.model(*args, **kwargs))
        outputs = [t for t in tensors if t.is_floating_point() and t.requires_grad]
        if not outputs:
            raise InputError("the model's output carries no gradient; pass a model with parameters that require one")
        noise = torch.randn(outputs[0].shape, generator=torch.Generator().manual_seed(0)).to(outputs[0].device)
        return (outputs[0].float() * noise).sum()

    def forget(self, parameters: Iterable[Tensor]) -> None:
        """Drop what the optimizer remembers of parameters that were drawn or scaled anew."""
        for parameter in parameters:
            if self.optimizer is not None:
                self.optimizer.state.pop(parameter, None)


Change = Callable[[Patient], list[str]]


@dataclass(frozen=True)
class Remedy:
    """What repairs the finding of this name; `summary` says in one line what it does."""

    finding: str
    change: Change
    summary: str
    needs_optimizer: bool = False


REMEDIES: Registry[Remedy] = Registry("remedy")


def remedy(finding: str, summary: str, *, needs_optimizer: bool = False) -> Callable[[Change], Change]:
    """Register a function as the remedy for the finding of that name."""

    def register(change: Change) -> Change:
        REMEDIES.add(finding, Remedy(finding, change, summary, needs_optimizer))
        return change

    return register


def apply(model: nn.Module, name: str, optimizer: Optimizer | None = None, inputs: Inputs | None = None) -> list[str]:
    """Apply in place the remedy for the finding `name`; returns one line per change, [] when nothing was to do.

    optimizer   needed by remedies that change it; the others drop its state of the parameters that they set anew
    inputs      of the model's forward (a tuple, or a dict of keywords), for remedies that read the wiring; guessed
                from the signature when None

    The model has to hold its values. Remedies on initialization are for a model that has not been trained.
    Raises InputError for a name without a remedy, and when the remedy needs an optimizer and none is given.
    """
    entry = REMEDIES[name]
    if entry.needs_optimizer and optimizer is None:
        raise InputError(f"the remedy {name!r} changes the optimizer; pass optimizer=...")
    if any(p.is_meta for p in model.parameters()):
        raise InputError(f"the remedy {name!r} changes values, and the model is on the meta device; materialize it")
    with torch.no_grad():
        return entry.change(Patient(model, optimizer, inputs))


def remedy_lines(findings: Iterable[Finding]) -> str:
    """Python that repairs the findings that have a remedy, as text; a finding explained by another goes with it."""
    chosen: dict[str, Finding] = {}
    for finding in findings:
        treated = [f for f in (finding, *finding.consequences) if f.name in REMEDIES]
        if treated:
            chosen.setdefault(treated[0].name, treated[0])
    if not chosen:
        return "fix: no finding has a remedy that can be applied in place"
    lines = ["fix: after the model and the optimizer are built, before training (nothing was changed here):", ""]
    lines.append("    import streamgauge as sg")
    for name, finding in chosen.items():
        given = ", optimizer=optimizer" if REMEDIES[name].needs_optimizer else ""
        lines.append(f'    sg.fix.apply(model, "{name}"{given})  # {finding.code}: {REMEDIES[name].summary}')
    return "\n".join(lines)
