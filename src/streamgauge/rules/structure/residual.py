"""Rules on the skip path itself."""

from __future__ import annotations

from collections.abc import Iterator

from streamgauge.rules.evidence import CannotJudge
from streamgauge.rules.harm import Harm
from streamgauge.rules.places import end_of_stack, site, telling
from streamgauge.rules.rule import Find, rule
from streamgauge.vocabulary import Finding, Quantity, Readings, Severity, Wiring


@rule(
    "W001",
    "missing-residual",
    explains=(
        "stream-vanishes",
        "token-collapse",
        "norm-nullspace",
        "dead-parameters",
        "vanishing-gradient",
        "exploding-gradient",
        "unigram-plateau",
    ),
)
def missing_residual(
    find: Find,
    wiring: Wiring,
    harm: Harm,
    token_cosine: Readings | None = None,
    retention_total: Readings | None = None,
    *,
    shallow: int = 4,
    sound: float = 0.8,
    collapse: float = 0.95,
    collapsed: float = 0.99,
    vanished: float = 1e-3,
) -> Iterator[Finding]:
    """Sublayers replace the stream instead of adding to it.

    What it does:
        Finds stacks in which most sublayers (attention, feed-forward, mixer) hand on f(x) where a residual network
        hands on x + f(x). The wiring shows it; the token cosine after the last sublayer says whether it hurts.
    Why it matters:
        Attention averages tokens. Without a skip path nothing restores their differences, and the token cosine
        tends to 1 with depth: every position looks the same to the output head, which can then learn no more than
        the frequencies of the tokens.
    Threshold:
        More unjoined sublayers than joins, and at least two. Level error: the loss shows harm, or the tokens have
        collapsed (cosine at or above `collapsed`) in a stack of more than `shallow` sublayers. Level warning: more
        than `shallow` sublayers and a cosine that is at or above `sound` or was not measured, fewer and a cosine at or
        above `collapse`, or a gradient retention below `vanished`. Level info: shallow, or measured sound (shaped
        attention trains without skips), or the run trains. Byte models of width 32 without residuals start at 0.81
        to 0.90 with 2 blocks, 0.97 with 4, 1.000 with 12 and more.
    How to fix:
        Add the input back in each sublayer: `return x + f(norm(x))` in place of `return f(norm(x))`, and put one
        norm after the last block.
    Example:
        `x = self.attn(self.norm1(x)); x = self.ffn(self.norm2(x))` in each of 12 blocks: the token cosine is 1.000
        after the last block, and the loss stays at the unigram entropy.
    Source:
        Dong+ 2021 (arXiv 2103.03404): pure attention loses rank doubly exponentially with depth; Noci+ 2022
        (2206.03126). Exception: He+ 2023 (2302.10322), shaped attention. Cf. OpenNMT-py PR 2199.
    """
    bare = wiring.unjoined
    if not wiring.sublayers:
        raise CannotJudge("the wiring lists no sublayer")
    if len(bare) < 2 or len(bare) <= len(wiring.joins):
        return
    deep = len(bare) > shallow
    evidence = {"unjoined": Quantity(len(bare), "sublayers"), "joins": Quantity(len(wiring.joins), "joins")}
    predicted: Severity = "warning" if deep and token_cosine is None else "info"
    message = f"{len(bare)} of {len(wiring.sublayers)} sublayers have no residual connection"
    if token_cosine is not None:
        cosine = end_of_stack(telling(token_cosine, harm))
        evidence["token_cosine"] = Quantity(cosine, "1")
        message += f"; the token cosine after the last is {cosine:.3f}"
        if cosine >= (sound if deep else collapse):
            predicted = "error" if deep and cosine >= collapsed else "warning"
    if retention_total is not None:
        retained = end_of_stack(telling(retention_total, harm))
        evidence["retention_total"] = Quantity(retained, "1")
        if retained < vanished and predicted == "info":
            predicted = "warning"
    first = bare[0].path or "the first sublayer"
    yield find(
        harm.severity(predicted),
        site(bare),
        message,
        evidence=evidence | harm.evidence,
        cause=f"the output of each sublayer replaces the stream, from {first} on: what a token was is lost on the way",
        fix=f"where the output of `{first}` goes on alone, and after every sublayer up to `{bare[-1].path}`, add the "
        "sublayer's input: `x = x + f(norm(x))` in place of `x = f(norm(x))`; keep one norm after the last block",
    )
