"""Rules on what the stack does to the differences between tokens."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamgauge.rules.evidence import CannotJudge
from streamgauge.rules.harm import Harm
from streamgauge.rules.places import regime, site, span, telling
from streamgauge.rules.rule import Find, rule
from streamgauge.vocabulary import Finding, Quantity, Readings, Severity, Wiring


@rule("I004", "token-collapse", explains=("vanishing-gradient", "unigram-plateau"))
def token_collapse(
    find: Find,
    token_cosine: Readings,
    harm: Harm,
    wiring: Wiring | None = None,
    pretrained: bool | None = None,
    *,
    cut: float = 0.95,
    certain: float = 0.995,
    lost: float = 0.2,
) -> Iterator[Finding]:
    """The tokens of a sequence leave the stack pointing the same way.

    What it does:
        Reads the mean cosine between the tokens of a sequence after the last sublayer, and compares it with the one
        after the first: at initialization, or at the last reading where the loss shows harm. A run that trains passes.
    Why it matters:
        The head predicts from one token's features. Where they are the same at every position it can only predict
        the frequencies of the tokens, and queries and keys get no gradient that tells positions apart.
    Threshold:
        Cosine at or above `cut` after the last sublayer, with at most `lost` of the first sublayer's 1 - cosine left
        where there are residuals.
        With harm in the loss: error. At initialization it is a prediction only and depends on the wiring: warning
        where there is no residual, or at or above `certain` with the stream un-normed (pre, sandwich ...); info
        where post norms are (healthy Post-LN stacks start at 0.99) and between `cut` and `certain`. Healthy nets
        with small initial weights reach 0.85 to 0.95, 48 Pre-LN blocks with Xavier 0.91. Loaded weights are not judged
        at initialization: trained models that are sound have cosines up to 0.99.
    How to fix:
        Give every sublayer its skip path. Where post norms stand in a deep stack, use B2T, DeepNorm's alpha, or
        move the norm to the branch's input. Scale the branches down by 1/sqrt(2 L).
    Example:
        24 blocks of width 64 without residuals on bytes: 0.54 after the first block, 1.000 after the last, at init and
        after 200 steps. The same with Pre-LN: 0.09 at init, 0.52 after 200 steps.
    Source:
        Dong+ 2021 (arXiv 2103.03404); Noci+ 2022 (2206.03126); Cowsik+ 2024 (2403.02579): the angle exponent. The
        cut is a proposal, calibrated on this project's own runs.
    """
    row = telling(token_cosine, harm)
    read = np.flatnonzero(np.isfinite(row))
    if not len(read):
        raise CannotJudge("no finite token cosine was read")
    first, last = float(row[read[0]]), float(row[read[-1]])
    if harm.absent or (pretrained and not harm.measured):
        return
    kind: str = regime(wiring) if wiring is not None else "unrecognised"
    if last < cut:
        return
    if len(read) > 1 and kind != "no residual":
        if first >= certain:
            raise CannotJudge(
                f"the tokens are equal already after the first sublayer (cosine {first:.3f}): vary the input"
            )
        if 1 - last > lost * (1 - first):
            return
    predicted: Severity = "info"
    if kind == "no residual" or (kind not in ("post", "unrecognised") and last >= certain):
        predicted = "warning"
    onset = int(read[np.argmax(row[read] >= cut)])
    where = [p.index for p in token_cosine.places[onset : read[-1] + 1]]
    place, name = span(where), token_cosine.places[onset].path
    if wiring is not None:
        inside = [j for j in wiring.sublayers if j.index in where]
        place = site(inside) if inside else place
    if kind == "post" and wiring is not None and len(wiring.places) < len(wiring.sublayers):
        kind = "b2t"  # the long skip is there already
    remedy = {
        "no residual": f"from `{name}` on add each sublayer's input: `x = x + f(norm(x))` in place of `x = f(norm(x))`",
        "post": f"from `{name}` on use B2T (add the block's input again before its last norm), DeepNorm (its alpha on "
        "the skip with its beta in the init), or Pre-LN: `x + f(norm(x))` in place of `norm(x + f(x))`",
        "b2t": "multiply every matrix of a block by L^-1/2 at init, as B2T's authors do, and warm up for longer",
    }.get(kind, f"scale what each branch from `{name}` on adds: initialize its output projection with std/sqrt(2 L)")
    yield find(
        harm.severity(predicted),
        place,
        f"the mean cosine between tokens is {last:.3f} after the last sublayer ({first:.3f} after the first), at or "
        f"above {cut:g} from sublayer {where[0]} on",
        evidence={
            "token_cosine_last": Quantity(last, "1"),
            "token_cosine_first": Quantity(first, "1"),
            "step": Quantity(int(token_cosine.steps[-1 if harm.measured else 0]), "step"),
            **harm.evidence,
        },
        cause="attention averages the tokens, and "
        + ("no skip path" if kind == "no residual" else "what the skip path carries is too weak to")
        + (" keeps them apart" if kind == "no residual" else " keep them apart"),
        fix=remedy,
    )
