"""Signals of the largest values at one join: what a format has to hold, and how far one feature stands out."""

from __future__ import annotations

from torch import Tensor

from streamgauge.gauge.sample import Sample
from streamgauge.gauge.signals.base import signal

COUNTED = 16384
"""Values of which the median is taken."""


@signal()
def stream_peak(out: Sample) -> Tensor | None:
    """max|x'| of the stream leaving the join, over at most 8 x 64 tokens, the first of each sequence among them.

    float16 ends at 65504.
    """
    return None if out.tokens is None else out.tokens.abs().amax()


@signal()
def branch_peak(branch: Sample) -> Tensor | None:
    """max|f| of what the branch writes, over the same tokens as `stream_peak`; infinite where float16 overflowed."""
    return None if branch.tokens is None else branch.tokens.abs().amax()


@signal()
def stream_spread(out: Sample, stream_peak: Tensor) -> Tensor | None:
    """max|x'| / median|x'| of the stream leaving the join: 4 to 6 of a Gaussian, over 1000 with massive activations.

    The median is of at most `COUNTED` values. Source: Sun+ 2024 (arXiv 2402.17762), section 2: 1000 times the median
    and over 100.
    """
    if out.tokens is None:
        return None
    values = out.tokens.flatten()
    middle = values[:: -(-values.numel() // COUNTED)].abs().median()
    return stream_peak / middle
