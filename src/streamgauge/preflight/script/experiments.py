"""The experiments of a check on a script's model, between its first backward pass and its first update."""

from __future__ import annotations

import torch
from torch import Tensor

from streamgauge.gauge.target import original
from streamgauge.preflight.budget import Budget, Feed
from streamgauge.preflight.objective import Inputs
from streamgauge.preflight.phases import RESERVE, Seen, probe_phase
from streamgauge.preflight.script.fault import loss_of
from streamgauge.preflight.script.models import Watched
from streamgauge.preflight.script.targets import SeenTargets


def experiment(entry: Watched, targets: SeenTargets, dtype: torch.dtype | None) -> None:
    """Enter probes, `causal_lm` and `copied_targets` among the facts of a model; what was refused among its notes.

    Sublayers are left out only where the loss can be computed from the output once more; everything is put back.
    """
    wiring, given = entry.gauge.wiring, entry.first
    if wiring is None or given is None:
        return
    model, again = original(entry.model), targets.again
    device = next((p.device.type for p in entry.own), "cpu")

    def loss(inputs: Inputs) -> Tensor:
        with torch.autocast(device, dtype=dtype, enabled=dtype is not None):
            return loss_of(model(*inputs.args, **inputs.kwargs), again)

    so_far = entry.gauge.readings_so_far()
    readings = {name: so_far.readings(name) for name in so_far.signals}
    seen = Seen(model, wiring, given, readings)
    known = again is not None
    gradients = [(p, p.grad) for p in entry.own]
    try:
        probe_phase(model, seen, Budget(loss, RESERVE) if known else None, Feed([given]) if known else None, targets)
    except Exception as error:  # the check goes on without them
        seen.notes.append(f"the experiments ended early: {type(error).__name__}: {error}")
    for parameter, gradient in gradients:
        parameter.grad = gradient
    entry.facts.update(seen.facts)
    entry.notes += seen.notes
