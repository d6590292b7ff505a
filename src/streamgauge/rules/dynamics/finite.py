"""The rule on the first value that is not a number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from streamgauge.rules.evidence import CannotJudge
from streamgauge.rules.rule import Find, rule
from streamgauge.vocabulary import Finding, Quantity, Readings


@rule("T007", "non-finite")
def non_finite(
    find: Find,
    loss: Readings | None = None,
    grad_norm: Readings | None = None,
    stream_rms: Readings | None = None,
    grad_rms: Readings | None = None,
) -> Iterator[Finding]:
    """A reading or the loss is NaN or infinite.

    What it does:
        Finds the first step at which the loss, the gradient norm or a reading is not finite, and at that step the
        first place: in the order of the forward pass for activations, else of the backward pass for gradients.
    Why it matters:
        One NaN in a gradient makes every weight NaN at the next step. What comes first is the cause; all after it is
        consequence.
    Threshold:
        None: any NaN or infinity is an error. In a table of readings NaN also stands for "not measured"; it counts
        where the same place was finite at an earlier step, or another place is finite at the same step.
    How to fix:
        In the forward pass: a softmax over a row that is fully masked, a division or logarithm without eps, a norm
        whose eps rounds to zero in half precision, an activation beyond 65504 in float16. In the backward pass only:
        clip the gradient norm, lower the learning rate, warm up.
    Example:
        step 20: stream rms nan first at sublayer 6 (layers.3.self_attn): every key of one row is masked.
    Source:
        IEEE 754; cf. pytorch issues 24816 (fully masked row) and 41527 (eps in half precision).
    """
    whole = [r for r in (loss, grad_norm) if r is not None]
    forward = [r for r in (stream_rms,) if r is not None]
    backward = [r for r in (grad_rms,) if r is not None]
    if not whole and not forward and not backward:
        raise CannotJudge("needs a reading, and nothing was read")
    events = [(int(r.steps[i]), rank, r, i, j) for r, i, j, rank in _first_bad(forward, whole, backward)]
    if not events:
        return
    step, rank, readings, row, column = min(events, key=lambda e: e[:2])
    value = float(readings.values[row, column])
    where = readings.places[column]
    place = "run" if where.index < 0 else f"sublayer {where.index} ({where.path})"
    at = f" at {place}" if where.index >= 0 else ""
    yield find(
        "error",
        place,
        f"step {step}: {readings.signal} is {value}{at}, the first value that is not finite",
        evidence={readings.signal: Quantity(value, readings.unit), "step": Quantity(step, "step")},
        cause="an operation of the backward pass or the update overflowed or divided by zero"
        if rank == 2
        else "an operation in the forward pass at or before this place overflowed, or divided by zero",
        fix=f"at {place}: look for a row that is masked completely, a norm's eps that is zero in the dtype in use, "
        "float16 activations beyond 65504; skip the step, clip the gradient norm at 1, and lower the learning rate",
    )


def _first_bad(
    forward: list[Readings], whole: list[Readings], backward: list[Readings]
) -> Iterator[tuple[Readings, int, int, int]]:
    """(readings, row, column, rank) of the first bad row of each signal; rank 0 forward, 1 whole run, 2 backward."""
    for rank, group in enumerate((forward, whole, backward)):
        for readings in group:
            bad = ~np.isfinite(readings.values)
            if rank != 1:
                bad &= np.isinf(readings.values) | _measured(readings)
            rows = np.flatnonzero(bad.any(axis=1))
            if len(rows):
                columns = np.flatnonzero(bad[rows[0]])
                yield readings, int(rows[0]), int(columns[-1 if rank == 2 else 0]), rank


def _measured(readings: Readings) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """True where NaN must be a value: the place was finite before, or another place is finite in the same row."""
    finite = np.isfinite(readings.values)
    before = np.logical_or.accumulate(finite, axis=0)
    ever = finite.any(axis=0)
    return np.asarray(before | (finite.any(axis=1)[:, None] & ever))
