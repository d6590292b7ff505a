"""Signals of the forward pass at one join: how large the stream is, and how far a branch turns it."""

from __future__ import annotations

import torch
from torch import Tensor

from streamgauge.gauge.sample import Sample
from streamgauge.gauge.signals.base import Site, signal

POST_NORMED = ("post", "pre+post")


@signal()
def stream_rms(out: Sample) -> Tensor:
    """sqrt(mean(x'^2)) of the stream x' leaving the join, over all tokens and channels."""
    return out.rms


@signal()
def branch_ratio(stream: Sample, branch: Sample, site: Site) -> Tensor | None:
    """|b| rms(f) / (|a| rms(x)): what the branch f writes over the stream x that it is written onto, a x + b f.

    1/sqrt(k) for the k-th of equal independent increments; toward 0 the sublayer has gone quiet. Constant scales a, b
    are those of the wiring; not measured where one is learned, since no tap shows its value.
    """
    a, b = site.join.skip_scale, site.join.branch_scale
    a, b = 1.0 if a is None else a, 1.0 if b is None else b
    if isinstance(a, str) or isinstance(b, str) or site.join.per_channel or a == 0:
        return None
    return abs(b / a) * branch.rms / stream.rms


@signal()
def cosine(stream: Sample, out: Sample) -> Tensor | None:
    """mean over tokens of cos(x, x'), between the stream entering and the stream leaving the join.

    Averaged over a subsample of at most 8 x 64 tokens. Near 1 for most healthy deep nets: see `cosine_excess`.
    """
    if stream.directions.shape != out.directions.shape:
        return None
    return (stream.directions * out.directions).sum(-1).mean()


@signal()
def cosine_excess(
    cosine: Tensor, stream: Sample, out: Sample, site: Site, branch: Sample | None = None
) -> Tensor | None:
    """cos(x, x') less the value that an independent increment gives: 0 when branch and stream are uncorrelated.

    For x' = a x + b f with f orthogonal to x the cosine is |a| rms(x) / rms(x'), or with a norm after the addition
    |a| rms(x) / sqrt(a^2 mean(x^2) + b^2 mean(f^2)). For independent unit increments this is sqrt(k / (k + 1)) at the
    k-th join: 0.866 already at k = 3. A stream that shrinks is held against 1; where nothing is added the baseline
    is 0. Not measured where a learned scale, or a branch that no tap shows, would enter the baseline.
    Source: identity A0 of the literature sheet, derived there.
    """
    independent = _independent(stream, out, site, branch)
    return None if independent is None else cosine - independent


def _independent(stream: Sample, out: Sample, site: Site, branch: Sample | None) -> Tensor | None:
    if not site.joined:
        return torch.zeros_like(stream.mean_square)
    a, b = site.join.skip_scale, site.join.branch_scale
    a, b = 1.0 if a is None else a, 1.0 if b is None else b
    if isinstance(a, str):
        return None
    if site.join.placement not in POST_NORMED:
        return (abs(a) * stream.rms / out.rms).clamp(max=1.0)
    if isinstance(b, str) or branch is None:
        return None
    carried = a * a * stream.mean_square
    return (carried / (carried + b * b * branch.mean_square)).sqrt()


@signal()
def token_cosine(out: Sample) -> Tensor | None:
    """mean of cos(x'_s, x'_t) over pairs s != t of one sequence: (||sum_t u_t||^2 - T) / (T (T - 1)), u = x'/||x'||.

    Of the stream leaving the join, over at most 64 tokens of at most 8 sequences; 1 when all tokens have collapsed
    to one direction (Dong et al. 2021, 2103.03404). Not measured for sequences of one token.
    """
    tokens = out.directions.shape[1]
    if tokens < 2:
        return None
    total = out.directions.sum(1).square().sum(-1)
    own = out.directions.square().sum((1, 2))
    return ((total - own) / (tokens * (tokens - 1))).mean()
