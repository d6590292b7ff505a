from __future__ import annotations

import numpy as np
import pytest

from streamgauge.reporting.decimate import block_means, envelope, smooth, starts


@pytest.mark.parametrize(("length", "most"), [(1, 1), (7, 3), (400, 400), (10_000, 400), (3, 400), (5, 0)])
def test_starts_cut_everything_into_nearly_equal_blocks(length: int, most: int) -> None:
    cuts = starts(length, most)
    sizes = np.diff([*cuts, length])
    assert cuts[0] == 0
    assert len(cuts) == min(length, max(most, 1))
    assert sizes.min() >= 1
    assert sizes.max() - sizes.min() <= 1


def test_block_means_are_means_of_the_finite_values() -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((7, 23))
    values[0, :8] = np.nan
    values[3, 11] = np.inf
    broken = np.isinf(values)
    blocks = block_means(values, broken, 3, 5)
    for i, rows in enumerate(np.split(np.arange(7), starts(7, 3)[1:])):
        for j, columns in enumerate(np.split(np.arange(23), starts(23, 5)[1:])):
            block = values[np.ix_(rows, columns)]
            finite = block[np.isfinite(block)]
            assert blocks.mean[i, j] == pytest.approx(finite.mean(), rel=1e-12)
            assert blocks.broken[i, j] == np.isinf(block).any()


def test_a_block_without_a_finite_value_has_no_mean() -> None:
    blocks = block_means(np.full((1, 4), np.nan), np.array([[False, False, True, False]]), 1, 2)
    assert np.isnan(blocks.mean).all()
    assert blocks.broken.tolist() == [[False, True]]


def test_smooth_is_the_moving_average_of_the_finite_neighbours() -> None:
    values = np.array([1.0, 2.0, np.nan, 4.0, np.inf, 6.0, 9.0])
    got = smooth(values, 3)
    for i in range(len(values)):
        near = values[max(i - 1, 0) : i + 2]
        expected = near[np.isfinite(near)].mean() if np.isfinite(values[i]) else np.nan
        assert got[i] == pytest.approx(expected, nan_ok=True)


def test_smooth_keeps_a_constant_and_a_window_of_one() -> None:
    assert smooth(np.full(9, 2.5), 4) == pytest.approx(np.full(9, 2.5))
    assert smooth(np.array([1.0, 5.0]), 1).tolist() == [1.0, 5.0]


def test_a_spike_costs_its_neighbours_alone() -> None:
    values = np.full(100, 2.0)
    values[10] = 1e30
    assert smooth(values, 5)[20:].tolist() == [2.0] * 80


def test_envelope_keeps_the_extremes() -> None:
    values = np.sin(np.arange(10_000) / 7.0)
    values[5_003], values[77] = 40.0, np.nan
    steps, low, high = envelope(np.arange(10_000), values, 100)
    assert len(steps) == 100
    assert high.max() == 40.0
    assert low.min() == np.nanmin(values)
    assert np.all(low <= high)


def test_envelope_of_nothing_is_empty() -> None:
    assert [part.size for part in envelope(np.arange(3), np.full(3, np.nan), 10)] == [0, 0, 0]
    assert [part.size for part in envelope(np.arange(0), np.empty(0), 10)] == [0, 0, 0]
