"""Rules on stacks whose joins do not agree on where the norm stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from streamgauge.rules.evidence import CannotJudge
from streamgauge.rules.harm import Harm
from streamgauge.rules.places import site, telling
from streamgauge.rules.rule import Find, rule
from streamgauge.vocabulary import Finding, Join, Quantity, Readings, Severity, Wiring


@rule(
    "W006",
    "mixed-placement",
    explains=("stream-explodes", "exploding-gradient", "vanishing-gradient", "token-collapse"),
)
def mixed_placement(
    find: Find,
    wiring: Wiring,
    harm: Harm,
    branch_ratio: Readings | None = None,
    retention: Readings | None = None,
    *,
    rare: float = 0.25,
    outlier: float = 3.0,
) -> Iterator[Finding]:
    """A few joins have the norm elsewhere than the others of their kind.

    What it does:
        Compares the placements of the joins of one kind (attention, feed-forward ...) along the depth. One switch (Mix-
        LN: Post-LN below, Pre-LN above), a regular alternation, and a placement for each kind (HybridNorm) are designs;
        strays are found fault with.
    Why it matters:
        A stray post norm rescales the stream that the other blocks leave free; a stray un-normed branch reads a stream
        whose size grows with depth. Both come from a block that was built or edited apart from the others.
    Threshold:
        Joins whose placement at most a share `rare` of their kind has, in more than one switch along the depth and in
        no regular alternation: info. Warning where such a join's branch ratio, or its gradient retention, lies outside
        the others' median by a factor of `outlier`. Error where the loss shows harm, info where the run trains.
    How to fix:
        Build all blocks from one class with one setting; give the stray ones the placement of the rest.
    Example:
        12 Pre-LN blocks of which the seventh computes `norm(x + f(x))`.
    Source:
        Li+ 2024 (arXiv 2412.13795) and Zhuo+ 2025 (2503.04598) for the mixtures that are meant. The factor is twice
        the spread of branch ratios within healthy stacks of this project.
    """
    if len(wiring.joins) < 4:
        raise CannotJudge("needs at least four joins to say what the rule is among them")
    strays = [j for kind in sorted({j.kind for j in wiring.joins}) for j in _strays(wiring.joins, kind, rare)]
    if not strays:
        return
    strays.sort(key=lambda j: j.index)
    usual = Counter(j.placement for j in wiring.joins if j not in strays).most_common(1)[0][0]
    evidence = {
        "strays": Quantity(len(strays), "joins"),
        "placement": Quantity(", ".join(sorted({j.placement for j in strays})), "placement"),
        "usual": Quantity(usual, "placement"),
    }
    message = f"{len(strays)} of {len(wiring.joins)} joins are {evidence['placement'].value}, the others {usual}"
    predicted: Severity = "info"
    for name, readings in (("branch_ratio", branch_ratio), ("retention", retention)):
        factor = _apart(readings, strays, harm) if readings is not None else 1.0
        if factor >= outlier:
            predicted = "warning"
            evidence[f"{name}_factor"] = Quantity(factor, "1")
            message += f"; their {name.replace('_', ' ')} is {factor:.1f} times off the others'"
    yield find(
        harm.severity(predicted),
        site(strays),
        message,
        evidence=evidence | harm.evidence,
        cause=f"`{strays[0].path}` was built with another placement than its neighbours",
        fix=f"give `{strays[0].path}` the placement {usual}, as the other blocks have it",
    )


def _strays(joins: Sequence[Join], kind: str, rare: float) -> list[Join]:
    """The joins of a kind whose placement is rare and stands in no pattern."""
    row = [j for j in joins if j.kind == kind and j.placement != "unrecognised"]
    counts = Counter(j.placement for j in row)
    if len(counts) < 2 or len(row) < 4:
        return []
    runs = [len(list(same)) for _, same in groupby(j.placement for j in row)]
    if len(runs) == 2 or _periodic([j.placement for j in row]):
        return []
    return [j for j in row if counts[j.placement] <= rare * len(row)]


def _periodic(words: Sequence[str]) -> bool:
    return any(
        all(a == b for a, b in zip(words, words[period:], strict=False)) for period in range(2, len(words) // 2 + 1)
    )


def _apart(readings: Readings, strays: Sequence[Join], harm: Harm) -> float:
    """The largest factor between a stray's reading and the median of the others, either way."""
    row = telling(readings, harm)
    mine = {j.index for j in strays}
    values = {p.index: float(v) for p, v in zip(readings.places, row.tolist(), strict=True) if np.isfinite(v) and v > 0}
    others = [v for i, v in values.items() if i not in mine]
    if not others:
        return 1.0
    usual = float(np.median(others))
    return max((max(v / usual, usual / v) for i, v in values.items() if i in mine), default=1.0)
