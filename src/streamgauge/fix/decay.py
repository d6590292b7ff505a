"""Remedies for weight decay."""

from __future__ import annotations

from typing import Any

from streamgauge.fix.base import Patient, remedy


@remedy("decay-on-gains", "gains and biases move to groups without weight decay", needs_optimizer=True)
def exclude_gains(patient: Patient) -> list[str]:
    """Norm gains, biases and other parameters with fewer than two axes move to groups without weight decay.

    Decay pulls a gain towards 0, which shrinks the branch behind the norm; the init rules all hold gains at 1.
    Learning rates, betas and the optimizer's state of every parameter stay as they are.
    """
    optimizer = patient.optimizer
    assert optimizer is not None
    names = {id(p): name for name, p in patient.model.named_parameters()}
    changed: list[str] = []
    groups: list[dict[str, Any]] = []
    for group in optimizer.param_groups:
        thin = [p for p in group["params"] if p.ndim < 2]
        if not thin or not group.get("weight_decay"):
            groups.append(group)
            continue
        decay = group["weight_decay"]
        rest = [p for p in group["params"] if p.ndim >= 2]
        if rest:
            groups.append({**group, "params": rest})
        groups.append({**group, "params": thin, "weight_decay": 0.0})
        changed += [f"{names.get(id(p), 'a parameter')}: weight decay {decay:g} -> 0" for p in thin]
    optimizer.param_groups[:] = groups
    return changed
