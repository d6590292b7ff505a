"""Rules on single features that outgrow the rest, and on matrices that lose rank."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamgauge.rules.dynamics.attention import where
from streamgauge.rules.evidence import CannotJudge
from streamgauge.rules.harm import Harm
from streamgauge.rules.rule import Find, rule
from streamgauge.vocabulary import Finding, Quantity, Readings


@rule("T008", "massive-activations")
def massive_activations(
    find: Find,
    stream_spread: Readings,
    stream_peak: Readings,
    harm: Harm,
    *,
    ratio: float = 1000.0,
    least: float = 100.0,
) -> Iterator[Finding]:
    """A few features of the stream are a thousand times larger than the rest.

    What it does:
        Takes the largest absolute value of the stream over the median, at each place, on at most 8 x 64 tokens.
    Why it matters:
        Such features act as a bias of attention: the model keeps them, quantization and half precision suffer, and
        norms shrink everything else at that token. Large trained models have them and are sound.
    Threshold:
        Over `ratio` times the median, and over `least`: info; warning where the run shows harm. Healthy runs of 4 to 24
        blocks stay below 100.
    How to fix:
        Nothing, where the run trains in bfloat16. Otherwise a norm on the branch's output (sandwich, Peri-LN),
        attention sinks or gates, and weight decay on the output projections.
    Example:
        Llama-2-7B: two features of the first token reach 2500, the median is 0.2.
    Source:
        Sun M.+ 2024 (arXiv 2402.17762), section 2: at least 100 and about 1000 times the median.
    """
    spread, peak = stream_spread.last, stream_peak.last
    if not np.isfinite(spread).any():
        raise CannotJudge("no finite spread was read")
    over = np.flatnonzero(np.isfinite(spread) & (spread > ratio) & (peak > least))
    if not len(over):
        return
    at = int(over[np.argmax(spread[over])])
    yield find(
        "warning" if harm.measured else "info",
        where(stream_spread, at),
        f"the largest value of the stream is {peak[at]:.3g}, {spread[at]:.3g} times the median, at {len(over)} places",
        evidence={
            "stream_spread": Quantity(float(spread[at]), "1"),
            "stream_peak": Quantity(float(peak[at]), "1"),
            "places": Quantity(len(over), "sublayers"),
        },
        cause="a few features carry a constant that attention uses as a bias",
        fix="compute in bfloat16; where that is not enough, norm the branches' outputs or decay their last matrices",
    )


@rule("T010", "stable-rank-drop", explains=("loss-spike", "exploding-gradient"))
def stable_rank_drop(
    find: Find, stable_rank: Readings, harm: Harm, *, drop: float = 0.3, within: float = 300
) -> Iterator[Finding]:
    """A weight matrix loses rank within a few hundred steps.

    What it does:
        Follows the lowest ||W||_F^2 / ||W||_2^2 over the matrices, recorded by the run as `stable_rank`:
        `gauge.record("stable_rank", value)`.
    Why it matters:
        One direction that outgrows the others, aligned from layer to layer, makes the gradient grow exponentially with
        depth: a precursor of spikes and divergence.
    Threshold:
        A fall by more than `drop` of its value within `within` steps: warning; info where the run trains, error with
        harm in the loss.
    How to fix:
        Weight decay on matrices, a lower peak rate, QK-norm, or an optimizer that bounds the spectral norm (Muon,
        MSign).
    Example:
        A 5M-parameter model at a high rate: the stable rank of the output projections falls from 12 to 4 in 200 steps,
        after which the gradient norm grows tenfold.
    Source:
        Ren+ 2026 (arXiv 2602.01734): stable rank and alignment of Jacobians as precursors. The edge is a proposal.
    """
    curve = np.nanmin(stable_rank.values, axis=1)
    steps = stable_rank.steps
    if len(curve) < 2:
        raise CannotJudge("needs two readings of the stable rank")
    falls = [
        (1 - curve[j] / float(np.nanmax(curve[(steps >= steps[j] - within) & (steps <= steps[j])])), j)
        for j in range(len(curve))
        if np.isfinite(curve[j])
    ]
    deepest, at = max(falls)
    if deepest <= drop:
        return
    yield find(
        harm.severity("warning"),
        where(stable_rank, int(np.nanargmin(stable_rank.values[at]))),
        f"the stable rank falls by {deepest:.0%} to {curve[at]:.3g} by step {int(steps[at])}",
        evidence={"drop": Quantity(float(deepest), "1"), "stable_rank": Quantity(float(curve[at]), "1")},
        cause="one singular direction of the matrix outgrows the others",
        fix="lower the peak learning rate, and put weight decay on the matrices",
    )
