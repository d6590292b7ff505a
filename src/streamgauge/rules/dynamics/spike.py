"""The rule on losses that jump."""

from __future__ import annotations

from collections.abc import Iterator

from streamgauge.rules.evidence import CannotJudge
from streamgauge.rules.harm import Harm
from streamgauge.rules.optimizer.spikes import EARLIEST, spikes
from streamgauge.rules.rule import Find, rule
from streamgauge.vocabulary import Finding, Quantity, Readings, Severity


@rule("T006", "loss-spike")
def loss_spike(
    find: Find,
    loss: Readings,
    harm: Harm,
    *,
    sigmas: float = 7.0,
    least: float = 0.3,
    many: float = 3,
    stay: float = 10,
) -> Iterator[Finding]:
    """The loss jumps out of its course.

    What it does:
        Compares each loss with the median of the 32 before it, in units of their spread, and counts the steps until it
        is back.
    Why it matters:
        A spike costs the steps until the loss is back, and announces divergence: the same burst of the gradient at a
        higher rate does not come back.
    Threshold:
        More than `sigmas` robust deviations and `least` nats above the median. One that comes back: info. At least
        `many`, or one that is not back after `stay` steps: warning; error where the run shows harm.
    How to fix:
        Clip the gradient norm at 1, lower beta2 to 0.95, lower the peak rate; small branches (1/sqrt(2 L)) on a large
        stream (embeddings of variance 1); QK-norm where attention logits grow. Skip the batch, if it is one.
    Example:
        Step 612: 2.1 to 4.8 nats, back after 40 steps, then again at 700 and 810.
    Source:
        OLMo 2 (arXiv 2501.00656): 7 deviations of a running mean; Takase+ 2023 (2312.16903).
    """
    if len(loss) <= EARLIEST:
        raise CannotJudge(f"{len(loss)} losses are too few (at least {EARLIEST + 1})")
    found = spikes(loss, sigmas, least)
    if not found:
        return
    lasting = [s for s in found if not s.recovered and s.length >= stay]
    severity: Severity = "info"
    if len(found) >= many or lasting:
        severity = "error" if harm.measured else "warning"
    worst = max(found, key=lambda s: s.height)
    count = "1 spike" if len(found) == 1 else f"{len(found)} spikes"
    yield find(
        severity,
        f"step {worst.step}",
        f"{count} of the loss, the highest at step {worst.step}: {worst.usual:.2f} to {worst.usual + worst.height:.2f} "
        f"nats, {'back' if worst.recovered else 'not back'} after {worst.length} steps",
        evidence={
            "spikes": Quantity(len(found), "spikes"),
            "height": Quantity(worst.height, "nat"),
            "length": Quantity(worst.length, "step"),
            "step": Quantity(worst.step, "step"),
        },
        cause="a burst of the gradient, from a batch or from steps that are too long, threw the weights off",
        fix="clip the gradient norm at 1, use beta2 0.95, and lower the peak learning rate by a third if spikes recur",
    )
