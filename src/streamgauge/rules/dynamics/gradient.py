"""Rules on the gradient that flows back along the stream."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamgauge.rules.dynamics.flow import flow, worst
from streamgauge.rules.harm import Harm
from streamgauge.rules.outcome import curve_of
from streamgauge.rules.places import regime
from streamgauge.rules.rule import Find, rule
from streamgauge.vocabulary import Finding, Quantity, Readings, Severity, Wiring


@rule("T001", "vanishing-gradient", explains=("unigram-plateau",))
def vanishing_gradient(
    find: Find,
    retention_total: Readings,
    harm: Harm,
    grad_rms: Readings | None = None,
    stream_rms: Readings | None = None,
    wiring: Wiring | None = None,
    retention: Readings | None = None,
    *,
    low: float = 0.05,
    fatal: float = 1e-4,
) -> Iterator[Finding]:
    """The gradient shrinks on its way from the last sublayer to the first.

    What it does:
        Divides the gradient rms of the stream at the first sublayer by that at the last, each times the rms of the
        stream there: a ratio that the growth of the stream does not change. Without these readings it takes the raw
        retention, with a band 50 times wider. Read at initialization, and at the end where the loss tells.
    Why it matters:
        The first layers learn from what arrives there. Adam divides the scale out, so a small ratio by itself is no
        fault; it is one where the gradient is zero, drowns in Adam's eps, or comes with a loss that does not fall.
    Threshold:
        Below `low`: info, with harm in the loss warning. Below `fatal`: warning, with harm error. Zero: error.
        Healthy stacks of every wiring lie between 0.8 and 7 at init, Post-LN decoders with cross-attention at 0.003 to
        0.4. Runs that train were read at 0.004 (24 B2T blocks) to 1, so the ratio by itself is never more than info.
    How to fix:
        Keep an unscaled skip path past the norms: B2T's second skip, Pre-LN, or DeepNorm's alpha. Where a sublayer
        without residual is the cause, add the residual.
    Example:
        24 Post-LN blocks, Xavier, learning rate 1e-3 after 30 steps of warm-up: 5 at init, 2e-4 after 200 steps, and
        the loss stays at the unigram entropy.
    Source:
        Takase+ 2022 (arXiv 2206.00330): decay at each norm; Xiong+ 2020 (2002.04745). The band is measured on
        random-init stacks of this project, 4 to 48 blocks of five schemes with two init rules.
    """
    passed = flow(retention_total, grad_rms, stream_rms, harm)
    if passed.ratio >= low / passed.slack:
        return
    severity: Severity = "warning" if harm.measured else "info"
    if passed.ratio < fatal / passed.slack:
        severity = harm.severity("warning")
    if passed.ratio == 0:
        severity = "error"
    place, at = worst(wiring, retention, "lowest", harm)
    cause, fix = _lost(wiring)
    reach = "no gradient" if passed.ratio == 0 else f"{passed.ratio:.2g} of the last sublayer's {passed.name}"
    yield find(
        severity,
        place,
        f"{reach} reaches the first sublayer (healthy: at least {low / passed.slack:g})",
        evidence={**passed.evidence, **at, **harm.evidence},
        cause=f"along the stream each sublayer passes back less gradient than it gets: {cause}",
        fix=f"{fix} (the most is lost at {place})",
    )


def _lost(wiring: Wiring | None) -> tuple[str, str]:
    """Why gradient is lost under this wiring, and what to change."""
    kind = regime(wiring) if wiring is not None else "unrecognised"
    if kind == "no residual":
        return "there is no skip path, only the branches", "add each sublayer's input: `x = x + f(norm(x))`"
    if kind == "post":
        return (
            "its norm divides by more than the skip path and the branch return",
            "in every block let the skip path go past the norm: `x + f(norm(x))` (Pre-LN), or add the block's input "
            "again before its last norm (B2T), or use DeepNorm's alpha on the skip with its beta in the init",
        )
    return (
        "what reaches the first layers is small against what the last ones get",
        "check the scales on the skip path and for parts of the stack that are frozen or detached",
    )


@rule("T002", "exploding-gradient", explains=("non-finite", "unigram-plateau"))
def exploding_gradient(
    find: Find,
    retention_total: Readings,
    harm: Harm,
    grad_rms: Readings | None = None,
    stream_rms: Readings | None = None,
    wiring: Wiring | None = None,
    retention: Readings | None = None,
    grad_norm: Readings | None = None,
    *,
    high: float = 20.0,
    fatal: float = 1e5,
    surge: float = 100.0,
) -> Iterator[Finding]:
    """The gradient grows on its way from the last sublayer to the first.

    What it does:
        Divides the gradient rms of the stream at the first sublayer by that at the last, each times the rms of the
        stream there: a ratio that the growth of the stream does not change. Without these readings it takes the raw
        retention, with a band 50 times wider. Read at initialization, and at the end where the loss tells. With harm
        in the loss it also asks whether the global gradient norm has grown during the run.
    Why it matters:
        Where the ratio grows exponentially with depth, a small change of the first layers changes the output by far
        more than the optimizer's step accounts for, and the run spikes or diverges.
    Threshold:
        Above `high`: info, with harm in the loss warning. Above `fatal`: warning, with harm error. A gradient norm
        that ends at `surge` times the median of the run's first quarter, with harm: warning. Healthy stacks of every
        wiring lie between 0.8 and 7 at init.
    How to fix:
        Scale what the branches add (1/sqrt(2 L) on their output projections), norm the branch's input, add QK-norm
        where only outputs are normed, warm up, and clip the gradient norm at 1.
    Example:
        Output norms alone, bidirectional, Xavier: the raw gradient ratio is 227 at 16 layers and 1e4 at 32, at init.
    Source:
        Takase+ 2023 (arXiv 2312.16903): small sublayers against bursts. The example: literature sheet E1. The band is
        measured on random-init stacks of this project, 4 to 48 blocks of five schemes with two init rules.
    """
    passed = flow(retention_total, grad_rms, stream_rms, harm)
    grown = _surge(grad_norm) if grad_norm is not None and harm.measured else 1.0
    if passed.ratio <= high * passed.slack and grown < surge:
        return
    severity: Severity = "warning" if harm.measured else "info"
    if passed.ratio > fatal * passed.slack:
        severity = harm.severity("warning")
    place, at = worst(wiring, retention, "highest", harm)
    message = f"the first sublayer gets {passed.ratio:.3g} times the last sublayer's {passed.name} "
    message += f"(healthy: at most {high * passed.slack:g})"
    if grown >= surge:
        at["grad_norm_growth"] = Quantity(grown, "1")
        message = f"the global gradient norm ends {grown:.3g} times as large as it was in the run's first quarter"
    yield find(
        severity,
        place,
        message,
        evidence={**passed.evidence, **at, **harm.evidence},
        cause="along the stream each sublayer passes back more gradient than it gets: its branch is large",
        fix=f"at {place} initialize the branch's output projection with std/sqrt(2 L) and norm the branch's input, "
        "`x + f(norm(x))`; warm the learning rate up and clip the gradient norm at 1",
    )


def _surge(grad_norm: Readings) -> float:
    curve = curve_of(grad_norm)
    start = float(np.median(curve[: max(1, len(curve) // 4)]))
    return float(curve[-1]) / start if len(curve) >= 8 and start > 0 else 1.0
