"""Signals of the backward pass at one join: how large the gradient of the stream is, and what the join does to it."""

from __future__ import annotations

from torch import Tensor

from streamgauge.gauge.sample import Sample
from streamgauge.gauge.signals.base import signal


@signal(unit="loss")
def grad_rms(grad_out: Sample) -> Tensor:
    """sqrt(mean(g^2)), g = dL/dx' the gradient of the stream x' leaving the join, over all tokens and channels.

    Scales with 1/tokens for a mean loss: compare it along the depth, not between batch shapes.
    """
    return grad_out.rms


@signal()
def retention(grad_stream: Sample, grad_out: Sample) -> Tensor:
    """rms(dL/dx) / rms(dL/dx'): the gradient entering the join over the gradient leaving it; below 1 it shrinks.

    sqrt(prod(1 + g_k / S_{k-1})) >= 1 along a Pre-LN stream, sqrt((a^2 + g) / (a^2 + v)) at a post-norm join
    (identity A0 of the literature sheet).
    """
    return grad_stream.rms / grad_out.rms
