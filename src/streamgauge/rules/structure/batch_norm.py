"""Rules on statistics over the batch."""

from __future__ import annotations

from collections.abc import Iterator

from streamgauge.rules.evidence import CannotJudge
from streamgauge.rules.harm import Harm
from streamgauge.rules.rule import Find, rule
from streamgauge.vocabulary import Finding, Probe, Quantity, Severity, Wiring


@rule("W013", "batch-norm-over-padding", explains=("norm-axis", "target-leak"))
def batch_norm_over_padding(
    find: Find,
    wiring: Wiring,
    harm: Harm,
    probes: tuple[Probe, ...] | None = None,
    *,
    moved: float = 1e-4,
) -> Iterator[Finding]:
    """Batch statistics are taken over padding as well.

    What it does:
        Finds BatchNorm in a model that mixes tokens, and changes the content of the padding: outputs at real tokens
        must not move.
    Why it matters:
        Mean and variance over batch and time include the padded positions, so that what a sequence gives depends on how
        much padding its batch needed. Statistics of short batches are those of padding, and the running statistics used
        in evaluation are an average over all this.
    Threshold:
        BatchNorm beside attention joins: info. Warning where outputs at real tokens move by more than `moved` of their
        rms, and three times the noise, with the content of the padding. Error where the loss shows harm too.
    How to fix:
        Take LayerNorm or RMSNorm over the features, or compute the statistics over valid tokens only.
    Example:
        `x = x + ffn(bn(x.transpose(1, 2)).transpose(1, 2))` on batches padded with zeros.
    Source:
        Shen+ 2020 (arXiv 2003.07845), Wang+ 2022 (2210.05153): why BatchNorm fails on padded sequences.
    """
    if not wiring.norms:
        raise CannotJudge("the wiring lists no norm")
    found = [norm for norm in wiring.norms if norm.kind == "batchnorm"]
    if not found or not any(j.kind in ("attention", "cross-attention") for j in wiring.sublayers):
        return
    seen = next((p for p in probes or () if p.name == "padding"), None)
    moves = seen is not None and seen.change > max(moved, 3 * seen.noise)
    evidence = {"norms": Quantity(len(found), "norms")}
    message = f"{len(found)} batch norms in a model with attention"
    if seen is not None and moves:
        evidence |= {"moved": Quantity(seen.change, "1"), "noise": Quantity(seen.noise, "1")}
        message += f": outputs at real tokens move by {seen.change:.2g} of their rms with what the padding holds"
    severity: Severity = "info"
    if moves:
        severity = "error" if harm.measured else "warning"
    first, last = found[0].path or "the model", found[-1].path
    yield find(
        severity,
        first if len(found) == 1 else f"{first} to {last}",
        message,
        evidence=evidence,
        cause="its mean and variance are taken over batch and time, padding included",
        fix=f"put `nn.LayerNorm(width)` over the features in place of `{first}`, or take the statistics over valid "
        "tokens: `x[mask]` through the norm",
    )
