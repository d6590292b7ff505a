"""Rules on stacks that norm only what the branches give."""

from __future__ import annotations

from collections.abc import Iterator

from streamgauge.rules.dynamics.flow import flow
from streamgauge.rules.evidence import CannotJudge
from streamgauge.rules.harm import Harm
from streamgauge.rules.places import regime, site
from streamgauge.rules.rule import Find, rule
from streamgauge.vocabulary import Finding, Quantity, Readings, Severity, Wiring


@rule("W014", "output-norm-without-qk-norm", explains=("exploding-gradient", "non-finite"))
def output_norm_without_qk_norm(
    find: Find,
    wiring: Wiring,
    harm: Harm,
    retention_total: Readings | None = None,
    grad_rms: Readings | None = None,
    stream_rms: Readings | None = None,
    *,
    high: float = 20.0,
) -> Iterator[Finding]:
    """Only the branches' outputs are normed, and queries and keys are not.

    What it does:
        Finds stacks of the placement x + norm(f(x)) whose attention has no norm on queries and keys, and measures how
        much the gradient grows on its way back.
    Why it matters:
        The branch reads the un-normed stream, so attention scores grow with its square. Attention sharpens with depth,
        and the gradient of the first blocks is larger than that of the last by orders of magnitude.
    Threshold:
        Structure alone: info. Warning where the scale-free gradient (gradient rms times stream rms) at the first
        sublayer is more than `high` times that at the last, as for exploding-gradient. Error where the loss shows harm,
        info where the run trains. Xavier, 6, 16, 32 blocks: 16, 227, 1e4 without, 7 and 9 (16, 32) with QK-norm; with
        N(0, 0.02) none of it shows.
    How to fix:
        Norm queries and keys per head before the scores: `q, k = q_norm(q), k_norm(k)`; or norm the branch's input.
    Example:
        32 blocks `x = x + norm(attn(x))` with Xavier: the first block's gradient is 10000 times the last one's.
    Source:
        OLMo 2 (arXiv 2501.00656), Swin-V2 (2111.09883): output norms always with QK-norm or cosine attention;
        Henry+ 2020 (2010.04245). The figures were measured at width 128.
    """
    if not wiring.joins:
        raise CannotJudge("needs a join, and the wiring has none")
    attention = [j for j in wiring.joins if j.kind == "attention" and j.placement == "output"]
    if regime(wiring) != "output" or not attention or any(norm.role == "qk" for norm in wiring.norms):
        return
    evidence = {"joins": Quantity(len(attention), "joins")}
    message = f"{len(attention)} attention sublayers read the stream un-normed, without a norm on queries and keys"
    predicted: Severity = "info"
    if retention_total is not None:
        passed = flow(retention_total, grad_rms, stream_rms, harm)
        evidence |= passed.evidence
        if passed.ratio > high * passed.slack:
            predicted = "warning"
            message += f"; the first sublayer gets {passed.ratio:.3g} times the last one's {passed.name}"
    yield find(
        harm.severity(predicted),
        site(attention),
        message,
        evidence=evidence | harm.evidence,
        cause="attention scores grow with the square of a stream that nothing norms before the projections",
        fix=f"in `{attention[0].path}` norm queries and keys per head before the scores, "
        "`q, k = q_norm(q), k_norm(k)`, or norm the branch's input, `x + f(norm(x))`",
    )
