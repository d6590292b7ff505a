"""Rules on constants at the joins that should follow from the depth."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from streamgauge.rules.evidence import CannotJudge
from streamgauge.rules.harm import Harm
from streamgauge.rules.places import end_of_stack, site, telling
from streamgauge.rules.rule import Find, rule
from streamgauge.rules.structure.strain import blocks_of
from streamgauge.vocabulary import Finding, Join, Quantity, Readings, Wiring


@rule(
    "W015",
    "wrong-depth-scale",
    explains=("stream-explodes", "stream-vanishes", "token-collapse", "vanishing-gradient", "exploding-gradient"),
)
def wrong_depth_scale(
    find: Find,
    wiring: Wiring,
    harm: Harm,
    token_cosine: Readings | None = None,
    stream_rms: Readings | None = None,
    retention_total: Readings | None = None,
    *,
    off: float = 1.25,
    far: float = 10.0,
    collapse: float = 0.95,
) -> Iterator[Finding]:
    """The constants on skip and branch do not fit the depth of the stack.

    What it does:
        Reads a = skip scale and b = branch scale at the joins. Post-LN with a > b: compares a / b with DeepNorm's
        (2 L)^(1/4), L blocks, or with KEEL's number of joins where the branch has a norm too. Un-normed streams:
        multiplies the skip scales along the depth, and compares b > 1 with the growth of the stream.
    Why it matters:
        Such constants are rules of depth. Copied from another model, or computed from blocks where the rule counts
        sublayers, they bound nothing: too small a skip lets deep Post-LN fail, a skip below 1 on a stream without norms
        forgets the embeddings exponentially, one above 1 lets it grow exponentially.
    Threshold:
        More than `off` from the rule: info. Warning with a symptom in the model's own readings: a token cosine at or
        above `collapse` after the last sublayer, or a product of skip scales, with the stream or the gradient to show
        for it, beyond a factor of `far`. Error where the loss shows harm, info where the run trains.
    How to fix:
        Compute the constant from the depth: DeepNorm alpha = (2 L)^(1/4), KEEL alpha = 2 L, branch 1/sqrt(2 L) with
        the skip at 1.
    Example:
        alpha = 1.86, right for 6 blocks, in a stack of 48, where the rule gives 3.13; `x = (x + f(norm(x))) / sqrt(2)`
        at 48 joins keeps 2^-24 of the embeddings.
    Source:
        Wang+ 2022 (arXiv 2203.00555): alpha; Chen & Wei 2026 (2601.19895): KEEL; GPT-2: 1/sqrt(2 L). The
        factor 1.25 leaves room for L counted as sublayers, 2^(1/4) = 1.19.
    """
    joins = [j for j in wiring.joins if j.placement != "unrecognised"]
    if not joins:
        raise CannotJudge("needs a join whose placement was recognised, and the wiring has none")
    scaled = [j for j in joins if _constant(j) is not None and _constant(j) != 1.0]
    loud = [j for j in joins if isinstance(j.branch_scale, float) and j.branch_scale > 1 and j.skip_scale is None]
    evidence = {"joins": Quantity(len(joins), "joins"), "blocks": Quantity(blocks_of(joins), "blocks")}
    symptom = ""
    if token_cosine is not None and (cosine := end_of_stack(telling(token_cosine, harm))) >= collapse:
        evidence["token_cosine"] = Quantity(cosine, "1")
        symptom = f"; the token cosine after the last sublayer is {cosine:.3f}"
    posts = [j for j in scaled if j.placement in ("post", "pre+post") and (_constant(j) or 0) > 1]
    if posts:
        given, rule_, right = _of_post(posts, joins)
        evidence |= {"given": Quantity(given, "1"), "right": Quantity(right, "1")}
        factor = max(given / right, right / given)
        if factor <= off:
            return
        severity = harm.severity("warning" if symptom and given < right else "info")
        message = f"the skip is scaled by {given:.3g}, and {rule_} gives {right:.3g} for this depth{symptom}"
        fix = f"scale the skip by {right:.4g} ({rule_}), and initialize the branch's matrices by the same rule"
    elif scaled and all(j.placement not in ("post", "pre+post") for j in scaled):
        total = 1.0
        for j in scaled:
            total *= float(j.skip_scale) if isinstance(j.skip_scale, int | float) else 1.0
        if 1 / far <= total <= far:
            return
        evidence["skip_product"] = Quantity(total, "1")
        shown = _shown(total, far, stream_rms, retention_total, harm)
        severity = harm.severity("warning" if shown or symptom else "info")
        message = f"the skip scales of {len(scaled)} joins multiply to {total:.2g} along the depth{shown or symptom}"
        fix = f"leave the skip at 1 and scale the branch by 1/sqrt({len(joins)}) = {len(joins) ** -0.5:.3g}"
    elif loud and stream_rms is not None:
        row = telling(stream_rms, harm)
        growth = end_of_stack(row) / float(row[0]) if row[0] else 1.0
        scale = median(float(j.branch_scale or 1.0) for j in loud)
        if growth <= far:
            return
        evidence |= {"branch_scale": Quantity(scale, "1"), "stream_growth": Quantity(growth, "1")}
        severity = harm.severity("warning")
        message = f"branches are scaled by {scale:.3g}, and the stream grows by a factor of {growth:.3g}"
        fix = f"scale each branch by 1/sqrt({len(joins)}) = {len(joins) ** -0.5:.3g}"
        scaled = loud
    else:
        return
    yield find(
        severity,
        site(posts or scaled),
        message,
        evidence=evidence | harm.evidence,
        cause="the constant was chosen for another depth, or from another count: blocks where the rule counts joins",
        fix=fix,
    )


def _constant(join: Join) -> float | None:
    """Skip scale over branch scale, where both are constants and one is set."""
    skip, branch = join.skip_scale, join.branch_scale
    if skip is None or isinstance(skip, str) or isinstance(branch, str) or branch == 0:
        return None
    return float(skip) / float(branch or 1.0) if join.placement in ("post", "pre+post") else float(skip)


def _of_post(posts: list[Join], joins: list[Join]) -> tuple[float, str, float]:
    """What is given, the rule's name, and what it asks for."""
    given = median(_constant(j) or 1.0 for j in posts)
    if posts[0].placement == "pre+post":
        return given, "KEEL, the number of joins", float(len(joins))
    crossed = any(j.kind == "cross-attention" for j in joins)
    layers = sum(j.kind == "cross-attention" for j in joins) if crossed else blocks_of(joins)
    if crossed:
        return given, "DeepNorm, (3 M)^(1/4)", float((3 * layers) ** 0.25)
    return given, "DeepNorm, (2 L)^(1/4)", float((2 * layers) ** 0.25)


def _shown(total: float, far: float, stream_rms: Readings | None, retention_total: Readings | None, harm: Harm) -> str:
    """What the readings show of the product, "" where they show nothing."""
    if stream_rms is not None:
        row = telling(stream_rms, harm)
        growth = end_of_stack(row) / float(row[0]) if row[0] else 1.0
        if growth > far or growth < 1 / far:
            return f"; the stream's rms changes by a factor of {growth:.3g}"
    if retention_total is not None:
        kept = end_of_stack(telling(retention_total, harm))
        if kept < 1 / far or kept > far:
            return f"; the first sublayer gets {kept:.3g} times the last one's gradient"
    return ""
