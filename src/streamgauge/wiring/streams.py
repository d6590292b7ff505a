"""Link the candidates to streams, find branches of earlier states, and leave out what is no residual addition."""

from __future__ import annotations

from streamgauge.wiring.branch import region_of, walk
from streamgauge.wiring.candidates import Branch, Candidate, Sites, assemble, branch_scale
from streamgauge.wiring.facts import Facts
from streamgauge.wiring.sums import Step, Sum


def link(facts: Facts, sites: Sites, candidates: list[Candidate], rest: list[Sum]) -> list[Candidate]:
    """Give every candidate its parent; add the sums of a stream with a branch of an earlier state of it."""
    by_top = {c.top: c for c in candidates}
    waiting = {s.top: s for s in rest}
    linked: list[Candidate] = []
    for top in sorted([*by_top, *waiting]):
        candidate = by_top.get(top)
        if candidate is None:
            candidate = _late(facts, sites, waiting[top], by_top)
            if candidate is None:
                continue
            by_top[top] = candidate
        else:
            candidate.parent = _parent(facts, candidate.skip.node, by_top, top)
            _late_branches(facts, sites, candidate, by_top)
        if candidate.parent is not None:
            candidate.parent.children.append(candidate)
        linked.append(candidate)
    return linked


def light_origins(facts: Facts, node: int, stops: dict[int, Candidate]) -> set[int]:
    """The sums (of `stops`) that a node comes from by light operations alone."""
    found: set[int] = set()
    seen: set[int] = set()
    todo = [node]
    while todo:
        i = todo.pop()
        if i in seen:
            continue
        seen.add(i)
        if i in stops:
            found.add(i)
        elif not facts.heavy[i]:
            todo.extend(facts.carriers(facts.nodes[i]))
    return found


def _parent(facts: Facts, node: int, by_top: dict[int, Candidate], top: int) -> Candidate | None:
    origins = {i for i in light_origins(facts, node, by_top) if i < top}
    return by_top[max(origins)] if origins else None


def _late(facts: Facts, sites: Sites, total: Sum, by_top: dict[int, Candidate]) -> Candidate | None:
    """A sum of the stream and a branch computed from an earlier state of the same stream."""
    for i, term in enumerate(total.terms):
        if term.starts[0][1] or facts.nodes[total.top].numel != facts.nodes[term.node].numel:
            continue
        parent = _parent(facts, term.node, by_top, total.top)
        if parent is None:
            continue
        others = total.terms[:i] + total.terms[i + 1 :]
        starts = [start for other in others for start in other.starts]
        state = _earlier_state(facts, starts, parent, by_top)
        if state is None:
            continue
        made = assemble(facts, sites, total, Step(state, term.scale), term.added, [], others)
        if made is not None:
            made.skip = Step(term.node, term.scale)
            made.parent = parent
        return made
    return None


def _late_branches(facts: Facts, sites: Sites, candidate: Candidate, by_top: dict[int, Candidate]) -> None:
    """Terms that were left loose become branches where they are computed from an earlier state of the stream."""
    for term in list(candidate.loose if candidate.parent is not None else ()):
        assert candidate.parent is not None
        state = _earlier_state(facts, list(term.starts), candidate.parent, by_top)
        if state is not None:
            candidate.loose.remove(term)
            region = region_of(facts, term.starts, state, sites.core)
            candidate.branches.append(Branch([term], term.added, branch_scale(facts, sites, term), region))


def _earlier_state(
    facts: Facts, starts: list[tuple[int, bool]], parent: Candidate, by_top: dict[int, Candidate]
) -> int | None:
    """The latest earlier sum of the parent's stream, or the stream's first node, that the starts are computed from."""
    states: list[int] = []
    root = parent
    while root.parent is not None:
        root = root.parent
        states.append(root.top)
    states.append(root.skip.node)
    _, past = walk(facts, starts, root.skip.node, by_top.keys() | {root.skip.node})
    return next((state for state in states if state in past), None)


def drop_inner(facts: Facts, candidates: list[Candidate]) -> list[Candidate]:
    """Leave out lone sums inside a branch: see the definition of a join."""
    dropped: set[int] = set()
    tops = {c.top: c for c in candidates}
    for outer in candidates:
        reach = [i for branch in outer.branches for i in branch.region.reach if i != branch.region.skip]
        inner = {i: tops[i] for i in reach if i in tops and i != outer.top}
        for i, candidate in inner.items():
            chained = bool(candidate.children) or (candidate.parent is not None and candidate.parent.top in inner)
            if not chained or not _trained(facts, candidate):
                dropped.add(i)
    kept = [c for c in candidates if c.top not in dropped]
    for candidate in kept:
        candidate.children = [c for c in candidate.children if c.top not in dropped]
        while candidate.parent is not None and candidate.parent.top in dropped:
            candidate.parent = candidate.parent.parent
    return kept


def _trained(facts: Facts, candidate: Candidate) -> bool:
    """Whether a branch multiplies with a parameter."""
    return any(
        facts.heavy[i] and any(facts.nodes[j].trained for j in facts.nodes[i].inputs)
        for branch in candidate.branches
        for i in branch.region.reach
    )
