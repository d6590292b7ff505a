"""Where the norms of a join stand: before the branch, after it, and on the sum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamgauge.vocabulary import Placement
from streamgauge.wiring import ops
from streamgauge.wiring.branch import NORMED, PASSED, RAW, entry_norms, exit_norm
from streamgauge.wiring.candidates import Branch, Candidate, Sites
from streamgauge.wiring.facts import Facts
from streamgauge.wiring.norms import Site
from streamgauge.wiring.sums import ONE, Scale, light_step

LONGEST = 48
"""How many joins back a pattern of blocks is compared."""


@dataclass
class Leave:
    """What becomes of a sum: `stream` is the node that goes on, `site` the one norm that all of it enters, if so."""

    stream: int
    scale: Scale
    site: Site | None


def leave(facts: Facts, sites: Sites, top: int) -> Leave:
    """Follow a sum through layout, casts and constant factors to where it is used."""
    at, scale = top, ONE
    trail = [top]
    while True:
        users = facts.live_users(at)
        if len(users) != 1:
            break
        node = facts.nodes[users[0]]
        if users[0] in sites.inner and not facts.same(node):
            break
        steps = [s for s in light_step(facts, users[0]) if s.node == at]
        if node.op in ops.PART or not steps or steps[0].scale.scalar or steps[0].scale.vector:
            break
        at, scale = users[0], scale.times(steps[0].scale)
        trail.append(at)
    return Leave(at, scale, _only_norm(facts, sites, set(trail), at))


def _only_norm(facts: Facts, sites: Sites, trail: set[int], at: int) -> Site | None:
    """The norm that takes all uses of a node, where there is one."""
    found: set[int] = set()
    todo = [at]
    while todo:
        for user in facts.live_users(todo.pop()):
            owners = [s for s in sites.inner.get(user, ()) if s.x in trail or facts.root[at] == s.x]
            if owners:
                found.update(s.core for s in owners)
            elif facts.same(facts.nodes[user]):
                todo.append(user)
            else:
                return None
    return sites.core[found.pop()] if len(found) == 1 else None


@dataclass
class Norms:
    """The norms around one branch; `partial` of `of` first operations read the stream without the entry norm."""

    entry: Site | None
    exit: Site | None
    partial: int = 0
    of: int = 0


def norms_of(facts: Facts, sites: Sites, branch: Branch) -> Norms:
    """Entry and exit norm of a branch."""
    bits = list(branch.region.entries.values())
    normed = sum(1 for b in bits if b & NORMED)
    raw = sum(1 for b in bits if b & RAW and not b & NORMED)
    entry = None
    bypassed = any(b & RAW and b & PASSED for b in bits)  # the stream itself goes on inside the branch
    if normed and not bypassed:
        found = entry_norms(facts, branch.region, sites.core)
        entry = found[0] if found else None
    out = exit_norm(facts, branch.starts, branch.region, sites.core)
    return Norms(entry, out, raw if entry else 0, len(bits))


def name(entry: bool, exit_: bool, post: bool, parallel: bool) -> Placement:
    """The word for a combination of norms."""
    if post:
        return "pre+post" if entry else "post"
    if entry:
        return "sandwich" if exit_ else "parallel-pre" if parallel else "pre"
    return "output" if exit_ else "none"


def posts(
    facts: Facts,
    sites: Sites,
    joins: list[Candidate],
    norms: dict[int, list[Norms]],
    leaves: dict[int, Leave],
    kinds: Mapping[int, tuple[str, ...]],
) -> dict[int, Site | None]:
    """The post norm of each sum, by its top; the last of a stream is settled by those before it."""
    found: dict[int, Site | None] = {}
    for candidate in sorted(joins, key=lambda c: not c.children):
        site = leaves[candidate.top].site
        if (
            site is not None
            and not candidate.children
            and not _own(facts, sites, candidate, joins, norms, found, kinds)
        ):
            site = None
        found[candidate.top] = site
    return found


def _own(
    facts: Facts,
    sites: Sites,
    last: Candidate,
    joins: list[Candidate],
    norms: dict[int, list[Norms]],
    found: dict[int, Site | None],
    kinds: Mapping[int, tuple[str, ...]],
) -> bool:
    """Whether the norm behind the last sum of a stream is the sum's own: as at the join before that is most like it.

    Most like is the one of the same norms and kind whose predecessors agree for the longest stretch.
    """
    before: list[Candidate] = []
    earlier = last.parent
    while earlier is not None:
        before.append(earlier)
        earlier = earlier.parent
    shape = _shape(norms[last.top])
    alike = [i for i, c in enumerate(before) if _shape(norms[c.top]) == shape]
    close = [i for i in alike if kinds[before[i].top] == kinds[last.top]] or alike

    words = [(_shape(norms[c.top]), kinds[c.top], found[c.top] is not None) for c in before]

    def agreement(i: int) -> int:
        length = min(LONGEST, len(words) - i - 1)
        return next((n for n in range(length) if words[n] != words[i + 1 + n]), length)

    if close:
        best = max(close, key=lambda i: (agreement(i), -i))
        return found[before[best].top] is not None
    elsewhere = [found[c.top] is not None for c in joins if c.children and _shape(norms[c.top]) == shape]
    if elsewhere:
        return sum(elsewhere) * 2 > len(elsewhere)
    own = sites.core[_only(facts, sites, last)]
    return shape == (False, False) or _only_norm(facts, sites, {own.end}, own.end) is not None


def _only(facts: Facts, sites: Sites, candidate: Candidate) -> int:
    site = leave(facts, sites, candidate.top).site
    assert site is not None  # asked only where one takes the whole sum
    return site.core


def _shape(norms: list[Norms]) -> tuple[bool, bool]:
    return any(n.entry is not None for n in norms), any(n.exit is not None for n in norms)
