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
        mean = total(np.where(finite, values, 0.0)) / total(finite.astype(np.float64))
    return Blocks(mean, total(broken.astype(np.float64)) > 0 if broken.any() else np.zeros(mean.shape, dtype=bool))


def smooth(values: Floats, window: int) -> Floats:
    """Centred moving average over the finite values within `window` entries; NaN where an entry is not finite."""
    finite = np.isfinite(values)
    if window <= 1 or not finite.any():
        return np.where(finite, values, np.nan)
    sums = np.concatenate([[0.0], np.cumsum(np.where(finite, values, 0.0))])
    counts = np.concatenate([[0.0], np.cumsum(finite)])
    at = np.arange(len(values))
    low, high = np.maximum(at - window // 2, 0), np.minimum(at + (window + 1) // 2, len(values))
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (sums[high] - sums[low]) / (counts[high] - counts[low])
    return np.where(finite, mean, np.nan)


def envelope(steps: Ints, values: Floats, most: int) -> tuple[Floats, Floats, Floats]:
    """Steps, minimum and maximum of the finite values of each of at most `most` blocks; empty blocks are left out."""
    if not len(values):
        return np.empty(0), np.empty(0), np.empty(0)
    cuts = starts(len(values), most)
    finite = np.isfinite(values)
    low = np.minimum.reduceat(np.where(finite, values, np.inf), cuts)
    high = np.maximum.reduceat(np.where(finite, values, -np.inf), cuts)
    centre = np.add.reduceat(steps.astype(np.float64), cuts) / np.diff([*cuts, len(values)])
    kept = low <= high
    return centre[kept], low[kept], high[kept]
