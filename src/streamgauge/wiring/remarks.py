"""What the reader adds in words: to `notes` what it saw, to `unplaced` what it could not place."""

from __future__ import annotations

from streamgauge.wiring.branch import Region, mixing
from streamgauge.wiring.candidates import Candidate
from streamgauge.wiring.facts import Facts
from streamgauge.wiring.norms import Site
from streamgauge.wiring.placement import Norms


def normed_skips(facts: Facts, kept: list[Candidate], posts: dict[int, Site | None]) -> list[str]:
    """A note where the norm of a sum is executed in the block of the next join: x = N(x); x = x + f(x)."""
    count = 0
    for candidate in kept:
        site = posts.get(candidate.top)
        if site is None or not candidate.children:
            continue
        after = min(candidate.children, key=lambda c: c.top)
        where = facts.nodes[site.core].call
        own = _depth_shared(facts, where, facts.nodes[candidate.top].call)
        count += _depth_shared(facts, where, facts.nodes[after.top].call) > own
    if not count:
        return []
    return [
        f"residual from normed: {count} sums are normed only in the block of the next join, which takes its skip and "
        "its branch from the normed value"
    ]


def _depth_shared(facts: Facts, a: int, b: int) -> int:
    first, second = _stack(facts, a), _stack(facts, b)
    return sum(1 for x, y in zip(first, second, strict=False) if x == y)


def _stack(facts: Facts, call: int) -> list[int]:
    found: list[int] = []
    while call >= 0:
        found.append(call)
        call = facts.graph.log.calls[call].parent
    return found[::-1]


def path_of(facts: Facts, node: int) -> str:
    """The module whose call made the node."""
    call = facts.nodes[node].call
    return facts.graph.log.calls[call].path if call >= 0 else ""


def shown(path: str) -> str:
    """A module path for a sentence."""
    return path or "the model"


def partial(facts: Facts, kept: list[Candidate], norms: dict[int, list[Norms]]) -> list[str]:
    """A line on the branches of which some first products read the stream without the branch's norm."""
    found = [
        f"{around.partial} of {around.of} products of the branch in {shown(path_of(facts, branch.added))}"
        for candidate in kept
        for branch, around in zip(candidate.branches, norms[candidate.top], strict=True)
        if around.partial
    ]
    more = f" (and so in {len(found) - 1} more branches)" if len(found) > 1 else ""
    return [f"{found[0]} read the stream without its norm{more}"] if found else []


def outside(facts: Facts, covered: set[int]) -> list[str]:
    """A line on operations across tokens that are in no branch and no unjoined sublayer."""
    whole = Region(-1, {i: 0 for i in range(len(facts.nodes)) if facts.graph.live[i] and facts.nodes[i].carrier})
    loose = [i for i, value in mixing(facts, whole).items() if value is not None and i not in covered]
    if not loose:
        return []
    paths = sorted({shown(path_of(facts, i)) for i in loose})
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return [f"attention in {', '.join(paths[:3])}{more} belongs to no residual branch that could be read"]
