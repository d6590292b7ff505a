"""Long series made short enough for a page, without hiding what is not finite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]
Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]


def starts(length: int, most: int) -> Ints:
    """First index of each of min(length, most) contiguous blocks of nearly equal size."""
    count = min(length, max(most, 1))
    return (np.arange(count, dtype=np.int64) * length) // max(count, 1)


@dataclass(frozen=True)
class Blocks:
    """Block means of a [rows, columns] table.

    mean    mean of the finite values of the block, NaN where it has none
    broken  the block holds a value that is not finite
    """

    mean: Floats
    broken: Bools


def block_means(values: Floats, broken: Bools, rows: int, columns: int) -> Blocks:
    """mean_B = sum of finite values in B / how many, over at most rows x columns blocks of `values` [rows, columns].

    `broken` marks the entries that were measured and are not finite; other NaN entries count as not measured.
    """
    cut_rows, cut_columns = starts(values.shape[0], rows), starts(values.shape[1], columns)
    finite = np.isfinite(values)

    def total(table: Floats) -> Floats:
        narrow = np.add.reduceat(table, cut_columns, axis=1)
        return np.asarray(np.add.reduceat(narrow, cut_rows, axis=0))

    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        if finite.all():
            sizes = [np.diff([*cuts, size]) for cuts, size in zip((cut_rows, cut_columns), values.shape, strict=True)]
            mean = total(values) / np.outer(*sizes)
        else:
            mean = total(np.where(finite, values, 0.0)) / total(finite.astype(np.float64))
    return Blocks(mean, total(broken.astype(np.float64)) > 0 if broken.any() else np.zeros(mean.shape, dtype=bool))


def smooth(values: Floats, window: int) -> Floats:
    """Centred moving average over the finite values within `window` entries; NaN where an entry is not finite.

    Summed window by window: with running sums one spike would cost the digits of everything after it.
    """
    finite = np.isfinite(values)
    window = min(window, len(values))
    if window <= 1:
        return np.where(finite, values, np.nan)
    box = np.ones(window)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        mean = np.convolve(np.where(finite, values, 0.0), box, "same") / np.convolve(finite, box, "same")
    return np.where(finite, mean, np.nan)


def envelope(steps: Ints, values: Floats, most: int) -> tuple[Floats, Floats, Floats]:
    """Steps, minimum and maximum of the finite values of each of at most `most` blocks; empty blocks are left out."""
    if not len(values):
        return np.empty(0), np.empty(0), np.empty(0)
    cuts = starts(len(values), most)
    finite = np.isfinite(values)
    low = np.minimum.reduceat(np.where(finite, values, np.inf), cuts)
    high = np.maximum.reduceat(np.where(finite, values, -np.inf), cuts)
    kept = low <= high
    return centres(steps, most)[kept], low[kept], high[kept]


def centres(steps: Ints, most: int) -> Floats:
    """The mean step of each of at most `most` blocks."""
    cuts = starts(len(steps), most)
    return np.asarray(np.add.reduceat(steps.astype(np.float64), cuts) / np.diff([*cuts, len(steps)]))
