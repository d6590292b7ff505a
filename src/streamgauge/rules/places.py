"""How a finding says where: ranges of sublayers, and what kind of stack they form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

from streamgauge.rules.harm import Harm
from streamgauge.vocabulary import Join, Readings, Wiring

Regime = Literal["no residual", "post", "pre", "output", "bare", "unrecognised"]

_REGIMES: dict[str, Regime] = {
    "post": "post",
    "pre+post": "post",
    "pre": "pre",
    "sandwich": "pre",
    "parallel-pre": "pre",
    "output": "output",
    "none": "bare",
    "unrecognised": "unrecognised",
}


def regime(wiring: Wiring) -> Regime:
    """What governs the stream: the commonest placement, or "no residual" where most sublayers have no join."""
    if len(wiring.unjoined) > len(wiring.joins):
        return "no residual"
    common = Counter(_REGIMES[join.placement] for join in wiring.joins).most_common(1)
    return common[0][0] if common else "unrecognised"


def span(indices: Iterable[int]) -> str:
    """Sublayer numbers as ranges: "sublayer 3", "sublayers 0-47", "sublayers 0-3, 7"."""
    numbers = sorted(set(indices))
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    shown = ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)
    return f"sublayer{'s' if len(numbers) > 1 else ''} {shown}"


def site(joins: Sequence[Join]) -> str:
    """Ranges and module paths: "sublayers 0-47 (blocks.0.attn to blocks.23.ffn)"."""
    first, last = joins[0].path, joins[-1].path
    paths = first if first == last else f"{first} to {last}"
    return f"{span(j.index for j in joins)} ({paths})" if paths else span(j.index for j in joins)


Row = np.ndarray[Any, np.dtype[np.float64]]


def at_end(readings: Readings) -> Row:
    """The last row that holds a finite value, [places]; all NaN where there is none."""
    return _row(readings, -1)


def telling(readings: Readings, harm: Harm) -> Row:
    """The row to judge: the last where the loss says how the run goes, else the first, at initialization.

    In between neither holds: while healthy sandwich stacks of 24 blocks learn the token frequencies (step 30), their
    token cosine is 1.000; at step 200 it is 0.71.
    """
    return _row(readings, 0 if harm.state == "unknown" else -1)


def _row(readings: Readings, which: int) -> Row:
    rows = np.flatnonzero(np.isfinite(readings.values).any(axis=1))
    if not len(rows):
        return np.full(len(readings.places), np.nan)
    return np.asarray(readings.values[rows[which]])


def end_of_stack(row: Row) -> float:
    """The reading at the last place that has one; NaN where nothing finite was read."""
    finite = row[np.isfinite(row)]
    return float(finite[-1]) if len(finite) else float("nan")
