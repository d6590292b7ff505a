"""The final norm, and the role of every norm."""

from __future__ import annotations

from typing import Literal

from streamgauge.wiring.branch import PASSED, region_of, walk
from streamgauge.wiring.candidates import Candidate, Sites
from streamgauge.wiring.facts import Facts
from streamgauge.wiring.placement import Norms

Role = Literal["join", "final", "embedding", "qk", "other"]


def roles(
    facts: Facts,
    sites: Sites,
    candidates: list[Candidate],
    norms: dict[int, list[Norms]],
    posts: set[int],
    bare: list[int],
) -> tuple[bool, dict[int, Role]]:
    """Whether a norm follows the last join on the way to the primary output, and each norm's role by its core."""
    found: dict[int, Role] = {}
    for core in posts:
        found[core] = "join"
    for around in norms.values():
        for norm in around:
            for site in (norm.entry, norm.exit):
                if site is not None:
                    found[site.core] = "join"
    last = _last(facts, candidates, bare)
    reach = region_of(facts, [(facts.graph.primary, False)], last, sites.core).reach if last >= 0 else {}
    after = False
    for core in sorted(reach.keys() & sites.core.keys()):
        if core in posts or core <= last:
            continue
        after = True
        found.setdefault(core, "other" if reach[core] == PASSED else "final")
    _inside(facts, sites, candidates, found)
    first = min((c.top for c in candidates), default=-1)
    within = {i for c in candidates for b in c.branches for i in b.region.reach}
    for site in sites.all:
        if site.core < first and site.core not in within:
            found.setdefault(site.core, "embedding")
    return after, found


def _last(facts: Facts, candidates: list[Candidate], bare: list[int]) -> int:
    """The last join or unjoined sublayer that the primary output comes from."""
    tops = sorted([*(c.top for c in candidates), *bare], reverse=True)
    for top in tops:
        light, past = walk(facts, [(facts.graph.primary, False)], top)
        if top in light or top in past:
            return top
    return -1


def _inside(facts: Facts, sites: Sites, candidates: list[Candidate], found: dict[int, Role]) -> None:
    """Norms between the projections and the scores of attention: on queries and keys."""
    for candidate in candidates:
        for branch in candidate.branches:
            for i in branch.region.reach:
                if i in sites.core and i not in found and branch.region.reach[i] & PASSED:
                    found[i] = "qk" if _to_scores(facts, i) else "other"


def _to_scores(facts: Facts, node: int) -> bool:
    """Whether a value goes by light operations into a product of two contents."""
    todo, seen = [node], set()
    while todo:
        i = todo.pop()
        if i in seen:
            continue
        seen.add(i)
        for user in facts.live_users(i):
            if facts.heavy[user]:
                return len(list(facts.carriers(facts.nodes[user]))) > 1
            todo.append(user)
    return False
