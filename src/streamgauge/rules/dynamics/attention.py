"""Rules on attention: logits that grow, and heads that look at one token only."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamgauge.rules.harm import Harm
from streamgauge.rules.rule import Find, rule
from streamgauge.vocabulary import Finding, Quantity, Readings


def where(readings: Readings, column: int) -> str:
    """The place of a column, or "the stack" for a number of the whole run."""
    place = readings.places[column]
    return "the stack" if place.index < 0 else f"sublayer {place.index} ({place.path})"


@rule(
    "T004",
    "attention-logit-growth",
    explains=("attention-entropy-collapse", "loss-spike", "non-finite", "unigram-plateau"),
)
def attention_logit_growth(
    find: Find,
    attention_logit_max: Readings,
    harm: Harm,
    *,
    high: float = 100.0,
    fatal: float = 1e4,
    growth: float = 2.0,
) -> Iterator[Finding]:
    """The logits of attention grow out of the range in which softmax can move.

    What it does:
        Follows the largest |q k| / sqrt(d) that the run recorded as `attention_logit_max`. A gauge cannot see it from
        outside of fused kernels: record it in the loop, `gauge.record("attention_logit_max", value)`.
    Why it matters:
        Softmax over logits that differ by tens is one-hot: its gradient is zero, and a small change of a query flips
        the choice. Logits grow where the learning rate is high and queries and keys are not normed, until the run
        diverges.
    Threshold:
        Over `high` and `growth` times what it was in the run's first quarter: warning, info where the run trains,
        error with harm in the loss. Over `fatal`: warning at least.
    How to fix:
        Norm queries and keys (QK-norm), or cap the logits (softcap, QK-clip); lower the learning rate.
    Example:
        A ViT at learning rate 1e-2 without QK-norm: logits pass 1e4 shortly before it diverges.
    Source:
        Wortsman+ 2023 (arXiv 2309.14322): divergence near 1e4; Dehghani+ 2023 (2302.05442); Kimi K2 (2507.20534): clip
        at 100.
    """
    curve = np.nanmax(attention_logit_max.values, axis=1)
    last, start = float(curve[-1]), float(np.nanmedian(curve[: max(1, len(curve) // 4)]))
    grows = last > growth * start
    if not (last > high and grows) and not last > fatal:
        return
    severity = harm.severity("warning")
    if last > fatal and severity == "info":
        severity = "warning"
    yield find(
        severity,
        where(attention_logit_max, int(np.nanargmax(attention_logit_max.last))),
        f"the largest attention logit is {last:.3g}, {last / start:.2g} times what it was in the run's first quarter",
        evidence={"attention_logit_max": Quantity(last, "1"), "growth": Quantity(last / start, "1")},
        cause="queries and keys grow together, and nothing bounds their product",
        fix="norm queries and keys per head (QK-norm) before the product, or cap the logits; lower the learning rate",
    )


@rule("T005", "attention-entropy-collapse", explains=("loss-spike", "unigram-plateau"))
def attention_entropy_collapse(
    find: Find, attention_entropy: Readings, harm: Harm, *, low: float = 0.1, fell: float = 0.5
) -> Iterator[Finding]:
    """Heads attend to a single token.

    What it does:
        Follows the lowest mean entropy of a head's attention over log(keys), recorded by the run as
        `attention_entropy`: `gauge.record("attention_entropy", value)`.
    Why it matters:
        A head at zero entropy passes no gradient to its queries and keys. Collapse coincides with divergence.
    Threshold:
        Below `low`, and below `fell` times what it was in the run's first quarter: warning; info where the run trains
        (induction heads are sharp and sound), error with harm in the loss.
    How to fix:
        sigma-reparametrization of the linears, QK-norm, a longer warm-up, a lower learning rate.
    Example:
        A speech model whose lowest head falls from 0.8 to 0.02 in 200 steps, after which the loss diverges.
    Source:
        Zhai+ 2023 (arXiv 2303.06296): attention entropy collapse. The tenth of log T is a proposal.
    """
    curve = np.nanmin(attention_entropy.values, axis=1)
    last, start = float(curve[-1]), float(np.nanmedian(curve[: max(1, len(curve) // 4)]))
    if not (last < low and last < fell * start):
        return
    yield find(
        harm.severity("warning"),
        where(attention_entropy, int(np.nanargmin(attention_entropy.last))),
        f"the lowest attention entropy is {last:.2g} of log(keys), from {start:.2g} in the run's first quarter",
        evidence={"attention_entropy": Quantity(last, "1"), "at_start": Quantity(start, "1")},
        cause="attention logits have grown until the softmax is one-hot",
        fix="norm queries and keys per head (QK-norm) or use sigma-reparametrized linears; lower the learning rate",
    )
