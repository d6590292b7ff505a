"""Rules on stacks whose norms stand on the stream itself."""

from __future__ import annotations

import math
from collections.abc import Iterator

from streamgauge.rules.evidence import CannotJudge
from streamgauge.rules.harm import Harm
from streamgauge.rules.places import site
from streamgauge.rules.rule import Find, rule
from streamgauge.rules.structure.strain import Strain, blocks_of, plain_post, strain
from streamgauge.vocabulary import Finding, Quantity, Readings, Severity, Wiring


@rule(
    "W003",
    "deep-post-norm",
    explains=(
        "post-norm-without-warmup",
        "doubled-final-norm",
        "post-norm-without-warmup",
        "token-collapse",
        "vanishing-gradient",
        "exploding-gradient",
        "unigram-plateau",
        "non-finite",
    ),
)
def deep_post_norm(
    find: Find,
    wiring: Wiring,
    harm: Harm,
    token_cosine: Readings | None = None,
    retention_total: Readings | None = None,
    loss: Readings | None = None,
    pretrained: bool | None = None,
    *,
    deep: int = 12,
    gone: float = 0.02,
    fraction: float = 0.05,
    vanished: float = 0.02,
) -> Iterator[Finding]:
    """A deep Post-LN stack without anything that carries the stream past its norms.

    What it does:
        Counts the blocks whose joins are plain Post-LN, norm(x + f(x)), with no second skip (B2T), no scale on the
        skip (DeepNorm, Admin) and no norm before the branch (KEEL), and looks for a symptom beside the depth.
    Why it matters:
        Each norm divides by the branch's variance, and the gradient comes back only by what branch and skip return.
        Where the branches average tokens, that is less at every join. The first updates then make all tokens equal,
        and the gradient of the first blocks is gone before the loss has moved.
    Threshold:
        More than `deep` blocks: info by itself. Warning with a symptom in the rehearsal: after 3 or more steps at most
        `gone` of the initial 1 - cosine between tokens is left after the last sublayer while the gradient retention
        fell below `fraction` of what it was, or the loss rises by more than 1 nat; or with a retention below `vanished`
        at init (decoders with cross-attention). Error where the run shows harm, info where it trains.
        18 blocks, Xavier, 1e-3: after 5 steps 0.003 of 1 - cosine is left, retention fell from 0.91 to 0.01, and the
        run fails; at 1e-4 and 3e-4 it trains, with retention at 0.2 or more; with torch's own init it trains at 1e-3.
    How to fix:
        Move the norm to the branch's input, `x + f(norm(x))` with one norm after the last block; or keep Post-LN with
        B2T's second skip or DeepNorm's alpha = (2 L)^(1/4); or lower the learning rate by 3 to 10 and warm up.
    Example:
        18 layers of `nn.TransformerEncoderLayer` (norm_first=False, the default) with Xavier and Adam at 1e-3 from the
        first step: the loss stays at ln(vocab).
    Source:
        Xiong+ 2020 (arXiv 2002.04745), Liu+ 2020 (2004.08249), Takase+ 2022 (2206.00330): Post-LN fails beyond 12
        layers or so without warm-up or a changed skip. Symptoms calibrated on this project's runs. Cf. pytorch 55270.
    """
    if not wiring.joins:
        raise CannotJudge("needs a join, and the wiring has none")
    joins = plain_post(wiring)
    blocks = blocks_of(joins)
    if blocks <= deep:
        return
    shown = strain(token_cosine, retention_total, loss, gone=gone, fraction=fraction)
    kept = float(retention_total.first[0]) if retention_total is not None and len(retention_total) else 1.0
    lost = kept < vanished
    severity: Severity = harm.severity("warning" if (shown.symptom or lost) and not pretrained else "info")
    evidence = {"blocks": Quantity(blocks, "blocks"), **shown.evidence, **harm.evidence}
    yield find(
        severity,
        site(joins),
        f"{blocks} Post-LN blocks in a row, norm(x + f(x)), with nothing that passes the norms"
        + shown.words
        + (f"; of the gradient {kept:.2g} reaches the first at init" if lost else ""),
        evidence=evidence,
        cause="every norm rescales the skip together with the branch: what the skip carries past many blocks, and the "
        "gradient that comes back by it, shrink with each",
        fix=_remedy(blocks),
    )


@rule("W005", "doubled-final-norm", explains=())
def doubled_final_norm(
    find: Find,
    wiring: Wiring,
    harm: Harm,
    token_cosine: Readings | None = None,
    retention_total: Readings | None = None,
    loss: Readings | None = None,
    *,
    gone: float = 0.02,
    fraction: float = 0.05,
) -> Iterator[Finding]:
    """The stream of a Post-LN stack is normed twice before the head.

    What it does:
        Finds stacks whose last join has its own post norm while one more norm stands between it and the head.
    Why it matters:
        The second norm changes next to nothing by itself. It belongs to Pre-LN: where it stands behind Post-LN blocks,
        Pre-LN was meant, or one of two copies of the norm is left over.
    Threshold:
        Info by itself. Warning where the rehearsal shows the symptoms of a Post-LN stack that fails (`gone`,
        `fraction`: see deep-post-norm), error where the loss shows harm.
    How to fix:
        If Pre-LN is meant, say so to the layers (`norm_first=True`); else drop the last norm.
    Example:
        `nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4), 18, norm=nn.LayerNorm(64))`.
    Source:
        Structure. torch's `nn.Transformer` does it by default; cf. k2-fsa/snowfall PR 184.
    """
    if not wiring.joins:
        raise CannotJudge("needs a join, and the wiring has none")
    last = wiring.joins[-1]
    finals = [norm for norm in wiring.norms if norm.role == "final"]
    if last.placement not in ("post", "pre+post") or not finals:
        return
    shown = strain(token_cosine, retention_total, loss, gone=gone, fraction=fraction)
    severity: Severity = harm.severity("warning" if shown.symptom else "info")
    yield find(
        severity,
        finals[-1].path or "the norm before the head",
        f"the stream is normed by the last join's own norm and again by {finals[-1].path or 'the norm behind it'}"
        + (shown.words if shown.symptom else ""),
        evidence={
            "placement": Quantity(last.placement, "placement"),
            "final_norms": Quantity(len(finals), "norms"),
            **shown.evidence,
            **harm.evidence,
        },
        cause="a final norm, which Pre-LN needs, stands behind blocks that are Post-LN",
        fix="if Pre-LN is meant, build the layers with it (`norm_first=True`, `x + f(norm(x))`); else drop "
        f"`{finals[-1].path or 'the last norm'}`",
    )


@rule(
    "W007",
    "residual-from-normed",
    explains=("deep-post-norm", "token-collapse", "vanishing-gradient", "unigram-plateau", "non-finite"),
)
def residual_from_normed(
    find: Find,
    wiring: Wiring,
    harm: Harm,
    token_cosine: Readings | None = None,
    retention_total: Readings | None = None,
    loss: Readings | None = None,
    *,
    few: int = 6,
    collapse: float = 0.95,
    gone: float = 0.02,
    fraction: float = 0.05,
) -> Iterator[Finding]:
    """The skip is taken after the norm that was meant for the branch alone.

    What it does:
        Reads the note of the wiring that sums are normed only in the block of the next join, which takes both its skip
        and its branch from the normed value: h = norm(x); x = h + f(h).
    Why it matters:
        It looks like Pre-LN and computes Post-LN: every norm stands on the stream. Deep stacks then behave as deep
        Post-LN stacks do, with the learning rate of Pre-LN.
    Threshold:
        Info up to `few` sums. Above that warning where the token cosine after the last sublayer is at or above
        `collapse` at init, or where the rehearsal shows the symptoms of deep-post-norm (`gone`, `fraction`). Error
        where the loss shows harm, info where the run trains. 24 blocks so: 0.997 at init, healthy twin 0.61.
    How to fix:
        Keep the un-normed stream for the skip: `x = x + f(norm(x))`, with one norm after the last block.
    Example:
        `h = self.ln(x); x = h + self.attn(h)` in each of 24 blocks.
    Source:
        He+ 2016 (arXiv 1603.05027): only an identity skip carries the signal unscaled. Cf. pytorch issue 61165. The
        cosine is that of this project's Post-LN stacks beyond 12 blocks.
    """
    note = next((n for n in wiring.notes if n.startswith("residual from normed")), None)
    if note is None:
        return
    joins = [j for j in wiring.joins if j.placement in ("post", "pre+post")] or list(wiring.joins)
    sums = next((int(word) for word in note.replace(":", " ").split() if word.isdigit()), len(joins))
    shown: Strain = strain(token_cosine, retention_total, loss, gone=gone, fraction=fraction)
    collapsed = not math.isnan(shown.cosine) and shown.cosine >= collapse
    severity: Severity = harm.severity("warning" if sums > few and (collapsed or shown.symptom) else "info")
    yield find(
        severity,
        site(joins) if joins else "the stack",
        f"{sums} sums are normed only in the next block, which takes its skip from the normed value" + shown.words,
        evidence={"sums": Quantity(sums, "sums"), **shown.evidence, **harm.evidence},
        cause="the norm's output replaces the stream: `h = norm(x); x = h + f(h)` is Post-LN, written like Pre-LN",
        fix="keep the stream for the skip: `x = x + f(norm(x))` in place of `h = norm(x); x = h + f(h)`, and put one "
        "norm after the last block",
    )


def _remedy(blocks: int) -> str:
    alpha = (2 * blocks) ** 0.25
    return (
        "norm the branch's input, `x + f(norm(x))` (torch: `norm_first=True` and one norm after the last block); or "
        f"scale the skip by alpha = {alpha:.2f} and the branch's matrices by {(8 * blocks) ** -0.25:.2f} (DeepNorm); "
        "or lower the learning rate by 3 to 10 with some hundred steps of warm-up"
    )
