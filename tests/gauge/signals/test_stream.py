"""Known answers for the signals of the forward pass."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from streamgauge.gauge import Site, sample
from streamgauge.gauge.signals import branch_ratio, cosine, cosine_excess, stream_rms, token_cosine
from streamgauge.vocabulary import Join

WIDTH = 64
AXES = torch.eye(WIDTH)


def tokens(*vectors: Tensor) -> Tensor:
    """One sequence whose tokens are these vectors."""
    return torch.stack(vectors)[None]


def site(placement: str = "pre", joined: bool = True, **scales: object) -> Site:
    return Site(Join(0, "block", placement, **scales), joined)  # type: ignore[arg-type]


def excess(x: Tensor, f: Tensor, out: Tensor, where: Site) -> float | None:
    stream, leaving = sample(x), sample(out)
    value = cosine_excess(cosine(stream, leaving), stream, leaving, where, sample(f))
    return None if value is None else value.item()


def test_stream_rms_counts_every_element() -> None:
    x = torch.zeros(2, 3, 4)
    x[0, 0, 0], x[1, 2, 3] = 3.0, 4.0
    assert stream_rms(sample(x)).item() == pytest.approx(math.sqrt(25 / 24), rel=1e-12)


def test_branch_ratio_is_that_of_the_roots() -> None:
    x, f = torch.full((2, 3, 4), 2.0), torch.full((2, 3, 4), -0.5)
    assert branch_ratio(sample(x), sample(f), site()).item() == pytest.approx(0.25, rel=1e-12)


def test_branch_ratio_knows_the_scales_of_the_join() -> None:
    """a x + b f with a = 6 (KEEL's alpha) and b = 0.5; with b = 0 (ReZero's start, held constant) nothing is added."""
    x, f = torch.full((2, 3, 4), 2.0), torch.full((2, 3, 4), -0.5)
    scaled = branch_ratio(sample(x), sample(f), site("pre+post", skip_scale=6.0, branch_scale=0.5))
    assert scaled.item() == pytest.approx(0.25 * 0.5 / 6, rel=1e-12)
    assert branch_ratio(sample(x), sample(f), site(branch_scale=0.0)).item() == 0.0


@pytest.mark.parametrize("scales", [{"branch_scale": "learned"}, {"skip_scale": "learned"}, {"per_channel": True}])
def test_branch_ratio_of_a_learned_scale_is_not_measured(scales: dict[str, object]) -> None:
    x = torch.ones(2, 3, 4)
    assert branch_ratio(sample(x), sample(x), site(**scales)) is None


@pytest.mark.parametrize("k", [1, 2, 3, 16, 32])
def test_independent_unit_increments_turn_the_stream_by_sqrt_k_over_k_plus_one(k: int) -> None:
    x, f = tokens(AXES[:k].sum(0)), tokens(AXES[k])
    assert cosine(sample(x), sample(x + f)).item() == pytest.approx(math.sqrt(k / (k + 1)), rel=1e-6)
    assert excess(x, f, x + f, site()) == pytest.approx(0.0, abs=1e-6)


def test_the_third_join_of_a_healthy_stack_reads_0_866() -> None:
    x, f = tokens(AXES[:3].sum(0)), tokens(AXES[3])
    assert round(cosine(sample(x), sample(x + f)).item(), 3) == 0.866


def test_a_branch_along_the_stream_has_the_largest_excess() -> None:
    x = tokens(AXES[0], AXES[1])
    assert excess(x, x, x + x, site()) == pytest.approx(1 - 1 / 2, rel=1e-6)


def test_scales_enter_the_baseline() -> None:
    x, f = tokens(AXES[0]), tokens(AXES[1])
    out = 2 * x + 3 * f
    where = site(skip_scale=2.0, branch_scale=3.0)
    assert cosine(sample(x), sample(out)).item() == pytest.approx(2 / math.sqrt(13), rel=1e-6)
    assert excess(x, f, out, where) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("placement", ["post", "pre+post"])
def test_after_a_post_norm_the_baseline_comes_from_stream_and_branch(placement: str) -> None:
    x, f = tokens(2 * AXES[0]), tokens(AXES[1])
    total = 0.5 * x + 3 * f
    normed = total * 8 / total.norm()
    where = site(placement, skip_scale=0.5, branch_scale=3.0)
    assert cosine(sample(x), sample(normed)).item() == pytest.approx(1 / math.sqrt(10), rel=1e-6)
    assert excess(x, f, normed, where) == pytest.approx(0.0, abs=1e-6)


def test_random_increments_have_no_excess() -> None:
    draw = torch.Generator().manual_seed(0)
    x, f = torch.randn(4, 64, 512, generator=draw), torch.randn(4, 64, 512, generator=draw)
    assert excess(x, f, x + f, site()) == pytest.approx(0.0, abs=0.005)
    assert excess(x, f, x + f, site("post")) == pytest.approx(0.0, abs=0.005)


def test_without_an_addition_any_likeness_is_excess() -> None:
    x, f = tokens(AXES[0]), tokens(AXES[0] + AXES[1])
    assert excess(x, f, f, site("none", joined=False)) == pytest.approx(math.sqrt(0.5), rel=1e-6)


@pytest.mark.parametrize(
    ("placement", "scales", "measured"),
    [
        ("pre", {"skip_scale": "learned"}, False),
        ("pre", {"branch_scale": "learned"}, True),
        ("post", {"branch_scale": "learned"}, False),
        ("post", {"skip_scale": "learned-vector"}, False),
    ],
)
def test_a_learned_scale_in_the_baseline_leaves_it_unmeasured(
    placement: str, scales: dict[str, str], measured: bool
) -> None:
    x, f = tokens(AXES[0]), tokens(AXES[1])
    assert (excess(x, f, x + f, site(placement, **scales)) is not None) == measured


def test_a_branch_that_no_tap_shows_is_needed_only_after_a_post_norm() -> None:
    x, out = sample(tokens(AXES[0])), sample(tokens(AXES[0] + AXES[1]))
    assert cosine_excess(cosine(x, out), x, out, site()).item() == pytest.approx(0.0, abs=1e-6)
    assert cosine_excess(cosine(x, out), x, out, site("post")) is None


def test_cosine_needs_streams_of_one_shape() -> None:
    assert cosine(sample(torch.ones(1, 4, 8)), sample(torch.ones(1, 2, 8))) is None


@pytest.mark.parametrize(
    ("vectors", "expected"),
    [
        ([AXES[0]] * 5, 1.0),
        ([AXES[i] for i in range(7)], 0.0),
        ([AXES[i] - 1 / 4 * AXES[:4].sum(0) for i in range(4)], -1 / 3),
        ([AXES[0], AXES[0], AXES[1], AXES[1]], 1 / 3),
        ([AXES[0], 100 * AXES[0], 1e-20 * AXES[0]], 1.0),
        ([AXES[0], -AXES[0]], -1.0),
    ],
    ids=["collapsed", "orthogonal", "simplex", "two groups", "any length", "opposed"],
)
def test_token_cosine_of_constructed_tokens(vectors: list[Tensor], expected: float) -> None:
    assert token_cosine(sample(tokens(*vectors))).item() == pytest.approx(expected, abs=1e-6)


def test_token_cosine_is_the_mean_over_pairs_within_each_sequence() -> None:
    x = torch.randn(3, 6, 10, generator=torch.Generator().manual_seed(2)) + 0.5
    pairs = [
        torch.nn.functional.cosine_similarity(row[s], row[t], dim=0).item()
        for row in x
        for s, t in itertools.combinations(range(6), 2)
    ]
    assert token_cosine(sample(x)).item() == pytest.approx(sum(pairs) / len(pairs), rel=1e-5)


def test_token_cosine_does_not_compare_sequences() -> None:
    x = torch.stack([AXES[0].expand(4, WIDTH), AXES[1].expand(4, WIDTH)])
    assert token_cosine(sample(x)).item() == pytest.approx(1.0, rel=1e-6)


def test_a_single_token_has_no_other() -> None:
    assert token_cosine(sample(torch.ones(3, 1, 8))) is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_streams_are_measured_in_full_precision(dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(3)
    x = (3000 * torch.randn(2, 16, 32, generator=draw)).to(dtype)
    y = (x + torch.randn(2, 16, 32, generator=draw)).to(dtype)
    a, b = x.double(), y.double()
    assert stream_rms(sample(y)).item() == pytest.approx(b.square().mean().sqrt().item(), rel=1e-6)
    expected = torch.nn.functional.cosine_similarity(a, b, dim=-1).mean().item()
    assert 1 - cosine(sample(x), sample(y)).item() == pytest.approx(1 - expected, abs=1e-6)
