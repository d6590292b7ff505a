"""Rules on blocks of which one part is without what the rest has: a skip path, or the norm."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

from streamgauge.rules.evidence import CannotJudge
from streamgauge.rules.harm import Harm
from streamgauge.rules.places import end_of_stack, site, telling
from streamgauge.rules.rule import Find, rule
from streamgauge.vocabulary import Finding, Join, Quantity, Readings, Severity, Wiring


@rule("W002", "partial-residual", explains=("token-collapse", "vanishing-gradient", "unigram-plateau"))
def partial_residual(
    find: Find,
    wiring: Wiring,
    harm: Harm,
    token_cosine: Readings | None = None,
    *,
    cuts: int = 1,
) -> Iterator[Finding]:
    """Some sublayers replace the stream, while their like add to it.

    What it does:
        Finds sublayers without a residual addition in a stack whose other sublayers have one. Parts that stand
        outside the repeated blocks (projectors, poolers, heads) are left out.
    Why it matters:
        One sublayer without a skip cuts the stream of the whole stack: all that was written before it reaches the head
        only through that sublayer, and all gradients come back only through it. In every block it undoes the others.
    Threshold:
        At least `cuts` sublayers without a residual, no more than there are joins, in modules whose like elsewhere in
        the stack hold joins: warning; error where the loss shows harm, info where the run trains. Outside the
        repeated blocks: not found fault with.
    How to fix:
        Add the sublayer's input to its output, as the other sublayers do: `x = x + f(norm(x))`.
    Example:
        `x = x + self.attn(self.ln1(x)); x = self.mlp(self.ln2(x))` in each of 12 blocks: every feed-forward sublayer
        cuts the stream that attention has just been added to.
    Source:
        He+ 2016 (arXiv 1603.05027), figure 2 and equation 8: whatever stands on the skip path multiplies along the
        depth. Cf. OpenNMT-py PR 2199.
    """
    if not wiring.joins:
        raise CannotJudge("needs a join, and the wiring has none")
    if len(wiring.unjoined) > len(wiring.joins):
        return
    blocks = {_block(join.path) for join in wiring.joins} - {""}
    bare = [j for j in wiring.unjoined if any(_inside(_template(j.path), block) for block in blocks)]
    if len(bare) < max(1, cuts):
        return
    kinds = " and ".join(sorted({j.kind for j in bare}))
    evidence = {"unjoined": Quantity(len(bare), "sublayers"), "joins": Quantity(len(wiring.joins), "joins")}
    message = f"{len(bare)} {kinds} sublayers replace the stream, while {len(wiring.joins)} others add to it"
    if token_cosine is not None:
        cosine = end_of_stack(telling(token_cosine, harm))
        evidence["token_cosine"] = Quantity(cosine, "1")
        message += f"; the token cosine after the last is {cosine:.3f}"
    yield find(
        harm.severity("warning"),
        site(bare),
        message,
        evidence=evidence | harm.evidence,
        cause=f"what was in the stream before `{bare[0].path}` goes on only through its output: the skip ends there",
        fix=f"in `{bare[0].path}`"
        + (f" and the {len(bare) - 1} like it" if len(bare) > 1 else "")
        + " add the sublayer's input: `x = x + f(norm(x))` in place of `x = f(norm(x))`",
    )


def _template(path: str) -> str:
    return re.sub(r"(?<![^.])\d+(?![^.])", "#", path)


def _block(path: str) -> str:
    """The repeated part of a path, "layers.#" of layers.3.attn; "" where nothing is numbered."""
    before, number, _ = _template(path).rpartition("#")
    return before + number


def _inside(path: str, block: str) -> bool:
    return path == block or path.startswith(block + ".")


_LINE = re.compile(r"(\d+) of (\d+) products of the branch in (\S+) read the stream without its norm(.*)")


@rule("W008", "partial-norm", explains=("stream-explodes", "exploding-gradient", "non-finite"))
def partial_norm(
    find: Find,
    wiring: Wiring,
    harm: Harm,
    stream_rms: Readings | None = None,
    *,
    large: float = 2.0,
) -> Iterator[Finding]:
    """A branch reads the stream through its norm in some places and without it in others.

    What it does:
        Finds branches whose first products (queries, keys, values; gate and input of a feed-forward) do not all
        read the normed stream, and attention in which a norm stands on queries but not on keys, or the reverse.
    Why it matters:
        What is read un-normed grows with the stream: scores and values then scale with depth and training, while the
        norm beside them suggests that they do not. Most often a call `attn(norm(x), x, x)` is meant to be
        `attn(h, h, h)` with `h = norm(x)`.
    Threshold:
        Info where the stream's rms at init is at most `large` times its rms after the first sublayer or was not
        measured; warning above that; error where the loss shows harm, info where the run trains.
    How to fix:
        Norm once, `h = norm(x)`, and give h to every projection of the branch.
    Example:
        `x = x + self.attn(self.ln(x), x, x)`: queries are normed, keys and values are not.
    Source:
        Dehghani+ 2023 (arXiv 2302.05442): attention logits that grow with the norm of their inputs; the factor is
        the growth that the norm would have taken out.
    """
    lines = [match for line in wiring.unplaced if (match := _LINE.match(line))]
    grown = 1.0
    evidence: dict[str, Quantity] = {}
    if stream_rms is not None and len(row := telling(stream_rms, harm)):
        grown = end_of_stack(row) / float(row[0]) if row[0] else 1.0
        evidence["stream_growth"] = Quantity(grown, "1")
    severity: Severity = harm.severity("warning" if grown > large else "info")
    for match in lines[:1]:
        raw, of, path, more = int(match[1]), int(match[2]), match[3], match[4].strip()
        yield find(
            severity,
            path,
            f"{raw} of {of} products of the branch in {path} read the stream un-normed {more}".strip()
            + (f"; the stream grows by a factor of {grown:.2f}" if evidence else ""),
            evidence={"raw": Quantity(raw, "products"), "of": Quantity(of, "products"), **evidence, **harm.evidence},
            cause="the norm is applied to one argument of the branch and the stream itself is passed as the others",
            fix=f"in `{path}` compute `h = norm(x)` once and pass `h` wherever the branch reads the stream",
        )
    single = [] if lines else _one_of_two(wiring)
    if single:  # one norm over queries and keys stacked in one tensor looks the same, hence info
        yield find(
            harm.severity("info"),
            site(single),
            f"{len(single)} attention sublayers norm only one of queries and keys",
            evidence={"sublayers": Quantity(len(single), "sublayers"), **evidence, **harm.evidence},
            cause="scores grow with the side that is not normed",
            fix="norm queries and keys alike, before the rotary embedding: `q, k = q_norm(q), k_norm(k)`",
        )


def _one_of_two(wiring: Wiring) -> list[Join]:
    """Attention joins beside which a single norm on queries or keys was executed, by the paths of the norms."""
    qk = [norm.path for norm in wiring.norms if norm.role == "qk"]
    attention = [j for j in wiring.sublayers if j.kind in ("attention", "cross-attention")]
    alone = all(len(list(same)) == 1 for _, same in groupby(sorted(p.rpartition(".")[0] for p in qk)))
    return attention if qk and alone and len(qk) == len(attention) else []
