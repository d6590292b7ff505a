from __future__ import annotations

import math

import pytest
import torch

from streamgauge.gauge.sample import mean_square, pick, sample


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_mean_square_is_that_of_the_stored_values(dtype: torch.dtype) -> None:
    x = torch.randn(3, 5, 16, generator=torch.Generator().manual_seed(1)).to(dtype)
    expected = sum(v * v for v in x.double().flatten().tolist()) / x.numel()
    assert mean_square(x).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(1e-30, torch.float32), (1e30, torch.float32), (1e30, torch.bfloat16), (65504.0, torch.float16)],
)
def test_squares_neither_vanish_nor_overflow(value: float, dtype: torch.dtype) -> None:
    x = torch.full((2, 4, 8), value, dtype=dtype)
    assert sample(x).rms.item() == pytest.approx(x[0, 0, 0].double().item(), rel=1e-6)
    assert sample(x).directions.norm(dim=-1).numpy() == pytest.approx(1.0, rel=1e-5)


def test_what_is_not_finite_stays_visible() -> None:
    x = torch.ones(1, 2, 4)
    x[0, 1, 2] = math.inf
    assert sample(x).mean_square.item() == math.inf
    x[0, 0, 0] = math.nan
    assert math.isnan(sample(x).mean_square.item())


@pytest.mark.parametrize(
    ("shape", "picked"),
    [
        ((2, 5, 8), (2, 5, 8)),
        ((5, 8), (1, 5, 8)),
        ((8,), (1, 1, 8)),
        ((2, 3, 4, 8), (2, 12, 8)),
        ((32, 256, 8), (8, 64, 8)),
        ((9, 65, 8), (5, 33, 8)),
    ],
)
def test_at_most_eight_by_sixty_four_tokens_are_kept(shape: tuple[int, ...], picked: tuple[int, ...]) -> None:
    assert pick(torch.zeros(shape)).shape == picked


def test_tokens_are_evenly_spaced_and_a_copy() -> None:
    x = torch.arange(16.0).reshape(2, 8, 1)
    kept = pick(x, sequences=1, tokens=4)
    x.zero_()
    assert kept.flatten().tolist() == [0.0, 2.0, 4.0, 6.0]


def test_a_sample_keeps_the_value_from_before_a_change_in_place() -> None:
    x = torch.ones(2, 3, 4)
    taken = sample(x)
    x.mul_(5)
    assert taken.rms.item() == 1.0
    assert torch.equal(taken.directions, torch.full((2, 3, 4), 0.5))


def test_a_zero_token_has_no_direction() -> None:
    assert torch.equal(sample(torch.zeros(1, 2, 4)).directions, torch.zeros(1, 2, 4))


def test_taking_a_sample_draws_no_random_number() -> None:
    before = torch.get_rng_state()
    sample(torch.ones(64, 300, 8)).directions.sum()
    assert torch.equal(torch.get_rng_state(), before)


def test_a_gradient_sample_has_no_tokens() -> None:
    with pytest.raises(ValueError, match="without tokens"):
        _ = sample(torch.ones(1, 2, 4), tokens=False).directions
