"""The rule on the first value that is not a number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from streamgauge.rules.evidence import CannotJudge
from streamgauge.rules.rule import Find, rule
from streamgauge.vocabulary import Finding, Origin, Quantity, Readings


@rule("T007", "non-finite")
def non_finite(
    find: Find,
    loss: Readings | None = None,
    grad_norm: Readings | None = None,
    stream_rms: Readings | None = None,
    grad_rms: Readings | None = None,
    origin: Origin | None = None,
) -> Iterator[Finding]:
    """A reading or the loss is NaN or infinite.

    What it does:
        Finds the first step at which the loss, the gradient norm or a reading is not finite, and at that step the
        first place: in the order of the forward pass for activations, else of the backward pass for gradients. Where
        the operation was traced that made the value, it is named with its module.
    Why it matters:
        One NaN in a gradient makes every weight NaN at the next step. What comes first is the cause; all after it is
        consequence.
    Threshold:
        None: any NaN or infinity is an error. In a table of readings NaN also stands for "not measured"; it counts
        where the same place was finite at an earlier step, or at any step while others are finite at this one, or
        where the loss is not finite either and all places downstream are NaN too.
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
    broken = {int(r.steps[i]) for r in whole for i in np.flatnonzero(~np.isfinite(r.values[:, 0]))}
    events = [
        *_first(0, forward, lambda r: _not_finite(r, broken), at=0),
        *_first(1, [r for r in (loss,) if r is not None], lambda r: ~np.isfinite(r.values), at=0),
        *_first(2, backward, lambda r: _not_finite(r, broken, reverse=True), at=-1),
        *_first(3, [r for r in (grad_norm,) if r is not None], lambda r: ~np.isfinite(r.values), at=0),
    ]
    if not events:
        return
    step, rank, readings, row, column = min(events, key=lambda e: e[:2])
    value = float(readings.values[row, column])
    where = readings.places[column]
    place = "run" if where.index < 0 else f"sublayer {where.index} ({where.path})"
    at = f" at {place}" if where.index >= 0 else ""
    message = f"step {step}: {readings.signal} is {value}{at}, the first value that is not finite"
    evidence = {readings.signal: Quantity(value, readings.unit), "step": Quantity(step, "step")}
    if origin is not None:
        place = origin.path or place
        message += f"; it was made by {origin.op} ({origin.value}, {origin.dtype}, {origin.flow})"
        message += f" in {origin.path}" if origin.path else ""
        evidence |= {"operation": Quantity(origin.op, "operation"), "dtype": Quantity(origin.dtype, "dtype")}
        if origin.largest is not None:
            evidence["largest_input"] = Quantity(origin.largest, "1")
    yield find(
        "error",
        place,
        message,
        evidence=evidence,
        cause="an operation of the backward pass or the update overflowed or divided by zero"
        if rank >= 2
        else "an operation in the forward pass at or before this place overflowed, or divided by zero",
        fix=f"at {place}: look for a row that is masked completely, a norm's eps that is zero in the dtype in use, "
        "float16 activations beyond 65504; skip the step, clip the gradient norm at 1, and lower the learning rate",
    )


Table = np.ndarray[Any, np.dtype[np.bool_]]
Event = tuple[int, int, Readings, int, int]


def _first(rank: int, group: list[Readings], bad: Callable[[Readings], Table], *, at: int) -> Iterator[Event]:
    """(step, rank, readings, row, column) of the first bad row of each signal, at its first or last bad place."""
    for readings in group:
        table = bad(readings)
        rows = np.flatnonzero(table.any(axis=1))
        if len(rows):
            columns = np.flatnonzero(table[rows[0]])
            yield int(readings.steps[rows[0]]), rank, readings, int(rows[0]), int(columns[at])


def _not_finite(readings: Readings, broken: set[int], *, reverse: bool = False) -> Table:
    """Infinite, or NaN that is a value: the place was finite before, or it is finite at another step while others are
    finite at this one, or the run is broken at this step and everything downstream is NaN as well."""
    values = readings.values
    finite = np.isfinite(values)
    known = np.logical_or.accumulate(finite, axis=0) | (finite.any(axis=1)[:, None] & finite.any(axis=0))
    downstream = finite[:, ::-1] if not reverse else finite
    spread = ~np.logical_or.accumulate(downstream, axis=1)
    spread = spread[:, ::-1] if not reverse else spread
    at_break = np.isin(readings.steps, list(broken))[:, None] & finite.any(axis=1)[:, None]
    return np.asarray(np.isinf(values) | (np.isnan(values) & (known | (spread & at_break))))
