"""Rules on how the stream's size changes along the stack at initialization."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from streamgauge.rules.evidence import CannotJudge
from streamgauge.rules.harm import Harm
from streamgauge.rules.places import site
from streamgauge.rules.rule import Find, rule
from streamgauge.vocabulary import Finding, Quantity, Readings, Severity, Wiring


@rule("I001", "unscaled-residual-init", explains=("stream-explodes", "token-collapse", "exploding-gradient"))
def unscaled_residual_init(
    find: Find,
    wiring: Wiring,
    stream_rms: Readings,
    harm: Harm,
    pretrained: bool | None = None,
    *,
    deep: int = 24,
    grown: float = 3.0,
    heavy: float = 8.0,
    beyond: float = 8.0,
) -> Iterator[Finding]:
    """The branches of a deep stack start at full size.

    What it does:
        In stacks whose stream is not normed (pre, parallel-pre, no norm) and whose branches carry no scale, compares
        the stream's rms after the last sublayer with that after the first.
    Why it matters:
        Each of K branches adds its variance: the stream's rms grows as sqrt(1 + K v), v = the branch's variance over
        the first stream's. Late branches are then small beside the stream, and updates of early ones are amplified.
        With output projections initialized at std / sqrt(K) the growth is bounded at any depth.
    Threshold:
        More than `deep` sublayers and a growth over `grown`: info, since such stacks train (24 Pre-LN blocks with
        Xavier grow by 2.7 and train at 1e-3). Over `heavy`, twice what Xavier gives at 32 blocks: warning. Error where
        the loss shows harm, info where the run trains. More than `beyond` sqrt(K) is no sum (see stream-explodes).
    How to fix:
        Multiply the output projection of every branch by 1/sqrt(K), K = number of joins, after the usual init.
    Example:
        48 Pre-LN blocks with He initialization: the stream grows by a factor of 12; GPT-2's rule gives 1.4.
    Source:
        GPT-2 (Radford+ 2019) and nanoGPT: std / sqrt(2 L) on the two projections into the stream; growth of the un-
        normed stream: Xiong+ 2020 (arXiv 2002.04745).
    """
    free = [j for j in wiring.joins if j.placement in ("pre", "parallel-pre", "none")]
    if len(free) <= deep or len(free) < len(wiring.joins) or len(wiring.unjoined) > len(wiring.joins) or pretrained:
        return
    if any(j.branch_scale is not None or j.skip_scale is not None or j.per_channel for j in free):
        return
    growth = growth_of(stream_rms)
    if not grown < growth <= beyond * len(free) ** 0.5:
        return
    right = len(free) ** -0.5
    yield find(
        harm.severity("warning" if growth > heavy else "info"),
        site(free),
        f"{len(free)} branches without a scale: the stream's rms grows by a factor of {growth:.2f} at init",
        evidence={"stream_growth": Quantity(growth, "1"), "joins": Quantity(len(free), "joins"), **harm.evidence},
        cause="every branch adds at full size, so that the stream's variance grows with their number",
        fix=f"after the usual init multiply each branch's output projection by 1/sqrt({len(free)}) = {right:.3g}",
    )


@rule("I002", "stream-explodes", explains=("exploding-gradient", "non-finite", "initial-loss"))
def stream_explodes(
    find: Find,
    stream_rms: Readings,
    harm: Harm,
    wiring: Wiring | None = None,
    grad_norm: Readings | None = None,
    *,
    factor: float = 8.0,
    certain: float = 1e6,
) -> Iterator[Finding]:
    """The stream grows faster along the stack than a sum of branches does.

    What it does:
        Compares the stream's growth g = rms(last) / rms(first) at initialization with sqrt(K), what K branches give
        that are each as large as the first stream.
    Why it matters:
        Growth beyond that is a product, not a sum: each branch reads the un-normed stream and adds in proportion to
        it. It doubles with every few sublayers, the gradient does the same on its way back, and half precision
        overflows.
    Threshold:
        g over `factor` times sqrt(K): warning; over `certain`, or with a stream or gradient that is not finite: error.
        Error where the loss shows harm, info where the run trains. Healthy stacks: 1 to 4 at 48 sublayers of Pre-LN.
        Post norms, and norms on the branches' outputs, bound the stream by construction: such stacks are left out.
    How to fix:
        Norm the branch's input, or initialize the branch's output at zero or with a gain of 1/K.
    Example:
        24 blocks `x + f(x)` without norms and with He initialization: the stream grows by 10^7.
    Source:
        Zhang+ 2019 (arXiv 1901.09321), section 2: the variance of a residual net without norms doubles per block.
    """
    _read(stream_rms)
    if wiring is not None and _bounded(wiring):
        return
    growth = growth_of(stream_rms)
    places = np.flatnonzero(np.isfinite(stream_rms.first))
    bound = factor * math.sqrt(len(places))
    if growth <= bound:
        return
    onset = stream_rms.places[int(places[np.argmax(stream_rms.first[places] > bound * stream_rms.first[places[0]])])]
    read = [stream_rms.first[~np.isnan(stream_rms.first)], *([grad_norm.first] if grad_norm is not None else [])]
    overflows = not all(np.isfinite(values).all() for values in read)
    severity: Severity = "error" if growth > certain or overflows else harm.severity("warning")
    yield find(
        severity,
        site(wiring.sublayers) if wiring is not None and wiring.sublayers else "the stack",
        f"the stream's rms grows by a factor of {growth:.3g} over {len(places)} sublayers (sum of branches: "
        f"{math.sqrt(len(places)):.1f}), beyond {bound:.0f} from `{onset.path}` on",
        evidence={
            "stream_growth": Quantity(growth, "1"),
            "sublayers": Quantity(len(places), "sublayers"),
            **harm.evidence,
        },
        cause="branches read a stream that nothing norms and add in proportion to it: growth multiplies with depth",
        fix=f"norm what each branch reads from `{stream_rms.places[0].path}` on, `x + f(norm(x))`, or start its output "
        "projection at zero",
    )


@rule("I003", "stream-vanishes", explains=("vanishing-gradient", "unigram-plateau", "token-collapse"))
def stream_vanishes(
    find: Find,
    stream_rms: Readings,
    harm: Harm,
    wiring: Wiring | None = None,
    pretrained: bool | None = None,
    *,
    small: float = 1e-3,
    tiny: float = 1e-6,
) -> Iterator[Finding]:
    """The stream shrinks along the stack until little is left.

    What it does:
        Compares the stream's rms after the last sublayer with that after the first, at initialization.
    Why it matters:
        What is left is divided out by a norm, or drowns in its eps and in the biases: the head then reads noise of the
        last sublayers, and gradients shrink alike on their way back.
    Threshold:
        rms(last) / rms(first) below `small`: warning; below `tiny`, where float32 adds nothing of it to a bias of 1:
        error. Error where the loss shows harm, info where the run trains. Healthy stacks keep at least 0.05, (x +
        f(norm(x)))/sqrt(2) over 32 sublayers with N(0, 0.02).
    How to fix:
        Leave the skip path at 1, add it where it is missing, or give the branches' matrices a gain of 1 (Xavier).
    Example:
        24 sublayers without a residual and without norms, N(0, 0.02): rms 1e-12 after the last.
    Source:
        Glorot & Bengio 2010; Gehring+ 2017 (arXiv 1705.03122): sqrt(1/2) needs branches of unit variance.
    """
    _read(stream_rms)
    if pretrained:
        return
    growth = growth_of(stream_rms)
    if growth >= small:
        return
    yield find(
        "error" if growth < tiny else harm.severity("warning"),
        site(wiring.sublayers) if wiring is not None and wiring.sublayers else "the stack",
        f"of the stream's rms after the first sublayer {growth:.2g} is left after the last",
        evidence={"stream_growth": Quantity(growth, "1"), **harm.evidence},
        cause="the skip path is scaled below 1 or missing, and the branches' matrices shrink what they read",
        fix=f"from `{stream_rms.places[0].path}` on keep the skip at 1, `x + f(norm(x))`, and initialize the branches "
        "with Xavier",
    )


def _bounded(wiring: Wiring) -> bool:
    """Whether a norm stands on the stream, or on most branches' outputs: the stream is a sum of terms of known size."""
    normed = sum(j.placement in ("post", "pre+post", "output", "sandwich") for j in wiring.joins)
    return 2 * normed > len(wiring.joins)


def growth_of(stream_rms: Readings) -> float:
    """rms after the last sublayer that is finite over rms after the first, at the first reading; 1 where none is."""
    row = stream_rms.first
    finite = row[np.isfinite(row)]
    return float(finite[-1] / row[0]) if len(finite) and row[0] > 0 and np.isfinite(row[0]) else 1.0


def _read(stream_rms: Readings) -> None:
    row = stream_rms.first
    if not len(row) or not np.isfinite(row[0]) or row[0] <= 0:
        raise CannotJudge("the stream after the first sublayer is zero, not finite, or was not read")
