"""Rules on what stands between the last join and the head."""

from __future__ import annotations

import math
from collections.abc import Iterator

from streamgauge.rules.evidence import CannotJudge
from streamgauge.rules.harm import Harm
from streamgauge.rules.outcome import curve_of
from streamgauge.rules.places import span
from streamgauge.rules.rule import Find, rule
from streamgauge.vocabulary import Finding, Quantity, Readings, Severity, Wiring

UNNORMED = ("pre", "sandwich", "output", "parallel-pre")
"""Placements that leave the stream itself un-normed: a norm must follow the last join."""


@rule("W004", "missing-final-norm", explains=("initial-loss", "exploding-gradient", "non-finite", "unigram-plateau"))
def missing_final_norm(
    find: Find,
    wiring: Wiring,
    harm: Harm,
    loss: Readings | None = None,
    vocab: int | None = None,
    stream_rms: Readings | None = None,
    pretrained: bool | None = None,
    *,
    excess: float = 1.0,
    large: float = 2.5,
) -> Iterator[Finding]:
    """The stream of a pre-norm stack reaches the head without a norm.

    What it does:
        Finds stacks whose branches read a norm of the stream (placements pre, sandwich, output, parallel-pre) while
        no norm follows the last join. The initial loss, or the rms of the stream, says whether it hurts.
    Why it matters:
        In such a stack the stream is never normed: each branch adds to it, so its variance grows with depth, at init
        linearly, in training up to exponentially. The head then sees features of that scale, its logits start large,
        and the first losses are far above that of a uniform guess.
    Threshold:
        Structure alone: info, and warning where the loss shows harm. With an initial loss over ln(vocab) + `excess`
        nats, or, where the vocabulary is not known, an initial stream rms over `large` after the last join (a norm
        would make it 1): warning, and error where the loss shows harm as well. Byte models of five schemes, 4 to 48
        blocks, start within 0.4 nats of ln(vocab), small nets with Xavier heads within 0.6.
    How to fix:
        Norm the stream once after the last block, before the head: `logits = head(norm_f(x))`. In torch:
        `nn.TransformerEncoder(layer, depth, norm=nn.LayerNorm(width))`.
    Example:
        16 layers of `nn.TransformerEncoderLayer(norm_first=True)` in `nn.TransformerEncoder(..., norm=None)`: the
        initial loss is 8.0 nats for 32 classes, and ln 32 = 3.47.
    Source:
        Baevski & Auli 2018 (arXiv 1809.10853), GPT-2: Pre-LN with a final norm; Xiong+ 2020 (2002.04745): growth of
        the un-normed stream. Cf. PaddleNLP issue 453.
    """
    if not wiring.joins:
        raise CannotJudge("needs a join, and the wiring has none")
    last = wiring.joins[-1]
    if last.placement == "unrecognised":
        raise CannotJudge(f"the placement at the last join ({last.path or last.index}) was not recognised")
    if last.placement not in UNNORMED or wiring.final_norm:
        return
    evidence = {"placement": Quantity(last.placement, "placement"), "joins": Quantity(len(wiring.joins), "joins")}
    message = f"no norm follows the last of {len(wiring.joins)} joins (placement {last.placement})"
    hurts = False
    if stream_rms is not None:
        rms = float(stream_rms.first[-1])
        evidence["stream_rms"] = Quantity(rms, "1")
        message += f"; the stream leaves with rms {rms:.2f}"
        hurts = rms > large and not harm.absent
    if loss is not None and vocab is not None and not pretrained:
        first, uniform = float(curve_of(loss)[0]), math.log(vocab)
        evidence |= {"initial_loss": Quantity(first, "nat"), "uniform_loss": Quantity(uniform, "nat")}
        message += f"; the initial loss is {first:.2f} nats, against {uniform:.2f} for a uniform guess"
        hurts = not first <= uniform + excess  # a loss that is NaN hurts
    severity: Severity = "warning" if hurts or harm.measured else "info"
    if hurts and harm.measured:
        severity = "error"
    norm = "nn.RMSNorm" if last.norm == "rmsnorm" else "nn.LayerNorm"
    place = f"after {span([last.index])}" + (f" ({last.path})" if last.path else "")
    yield find(
        severity,
        place,
        message,
        evidence=evidence | harm.evidence,
        cause="every branch adds to a stream that is never normed: the head sees features whose scale grows with depth",
        fix=f"add `norm_f = {norm}(width)` and call `head(norm_f(x))` on the stream that leaves "
        f"`{last.path or 'the last block'}` (torch: `nn.TransformerEncoder(layer, depth, norm={norm}(width))`)",
    )
