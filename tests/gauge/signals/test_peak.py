"""Known answers for the largest values of stream and branch."""

from __future__ import annotations

import pytest
import torch

from streamgauge.gauge import sample
from streamgauge.gauge.signals import branch_peak, stream_peak, stream_spread


def test_peak_is_the_largest_absolute_value() -> None:
    x = torch.randn(2, 5, 8)
    x[1, 3, 2] = -77.0
    assert stream_peak(sample(x)).item() == 77.0
    assert branch_peak(sample(x)).item() == 77.0


def test_an_overflow_of_float16_shows() -> None:
    x = torch.ones(1, 2, 4).half() * 60000
    assert stream_peak(sample(x)).item() == 60000
    assert branch_peak(sample(x + x)).item() == float("inf")


def test_spread_is_over_the_median() -> None:
    x = torch.full((1, 4, 16), 0.5)
    x[0, 0, 0] = 600.0
    taken = sample(x)
    assert stream_spread(taken, stream_peak(taken)).item() == pytest.approx(1200.0)


def test_spread_of_a_gaussian_is_small() -> None:
    """median |z| = 0.6745, and max |z| of n = 32768 is near sqrt(2 ln n) = 4.6."""
    taken = sample(torch.randn(8, 64, 64, generator=torch.Generator().manual_seed(0)))
    assert 5 < stream_spread(taken, stream_peak(taken)).item() < 9


def test_gradients_have_no_peak() -> None:
    assert stream_peak(sample(torch.randn(2, 3, 4), tokens=False)) is None
