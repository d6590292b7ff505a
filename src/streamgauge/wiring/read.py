"""read_wiring: one forward pass, its graph, and the wiring in it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import nn

from streamgauge.vocabulary import Join, Norm, Placement, Wiring
from streamgauge.wiring import final, placement, taps, unjoined
from streamgauge.wiring.branch import kind_of
from streamgauge.wiring.candidates import Branch, Candidate, Sites, find_candidates
from streamgauge.wiring.facts import Facts
from streamgauge.wiring.forward import record
from streamgauge.wiring.norms import Site, find_norms
from streamgauge.wiring.record import Graph
from streamgauge.wiring.streams import drop_inner, link
from streamgauge.wiring.sums import Scale, find_sums, light_step


def read_wiring(model: nn.Module, *args: Any, **kwargs: Any) -> Wiring:
    """The wiring of a model, read from one forward pass on the given inputs: see the room's docstring.

    Inputs may be real tensors or on the meta device, like the model. Without any, they are guessed from the
    signature and the model's config, and `notes` says so. The model is left as it was: mode, gradients, buffers,
    hooks and the state of the random number generators.

    Raises InputError, one line, where the model cannot be read: it raises on these inputs, returns no tensor, or
    is scripted.
    """
    graph, notes = record(model, args, kwargs)
    return read_graph(graph, notes)


def read_graph(graph: Graph, notes: list[str] | None = None) -> Wiring:
    """The wiring in a recorded graph."""
    reader = _Reader(graph)
    return reader.wiring(notes or [])


class _Reader:
    def __init__(self, graph: Graph) -> None:
        self.facts = Facts(graph)
        self.sites = Sites(find_norms(self.facts))
        self.taps = taps.Taps(self.facts)
        self.unplaced: list[str] = []
        found, rest = find_candidates(self.facts, self.sites, find_sums(self.facts))
        kept = drop_inner(self.facts, link(self.facts, self.sites, found, rest))
        tops = {c.top for c in kept}
        for candidate in kept:
            candidate.children = [c for c in candidate.children if c.top in tops]
            while candidate.parent is not None and candidate.parent.top not in tops:
                candidate.parent = candidate.parent.parent
        self.candidates = kept
        self.norms = {c.top: [placement.norms_of(self.facts, self.sites, b) for b in c.branches] for c in kept}
        self.leaves = {c.top: placement.leave(self.facts, self.sites, c.top) for c in kept}
        self.posts = placement.posts(self.facts, self.sites, kept, self.norms, self.leaves)

    def wiring(self, notes: list[str]) -> Wiring:
        raw: list[tuple[int, Join]] = []
        for candidate in self.candidates:
            raw.extend(self._joins(candidate))
        apart = unjoined.find(self.facts, self.sites, self.taps, self.candidates)
        order = sorted([(at, 0, j) for at, j in raw] + [(at, 1, j) for at, j in apart], key=lambda e: e[0])
        joins = tuple(_numbered(j, i) for i, (_, kind, j) in enumerate(order) if kind == 0)
        bare = tuple(_numbered(j, i) for i, (_, kind, j) in enumerate(order) if kind == 1)
        own = {site.core for site in self.posts.values() if site is not None}
        last, roles = final.roles(self.facts, self.sites, self.candidates, self.norms, own, [at for at, _ in apart])
        norms = tuple(self._norm(site, roles.get(site.core, "other")) for site in self.sites.all)
        return Wiring(joins, bare, last, norms, tuple(self.unplaced), tuple(notes))

    def _path(self, node: int) -> str:
        call = self.facts.nodes[node].call
        return self.facts.graph.log.calls[call].path if call >= 0 else ""

    def _norm(self, site: Site, role: Any) -> Norm:
        dtype = str(site.dtype).removeprefix("torch.")
        return Norm(self._path(site.core), site.kind, site.eps, site.size, dtype, site.fused, role)

    def _joins(self, candidate: Candidate) -> list[tuple[int, Join]]:
        facts = self.facts
        post, out = self.posts[candidate.top], self.leaves[candidate.top]
        after = out.scale if candidate.children or post is not None else Scale()
        stream = self.taps.stream(candidate.skip.node)
        left = self.taps.stream(post.end if post is not None else out.stream)
        kinds = [kind_of(facts, b.region) for b in candidate.branches]
        mixes = [k != "ffn" for k in kinds]
        parallel = len(kinds) > 1 and any(mixes)
        made: list[tuple[int, Join]] = []
        for branch, norms, kind in zip(candidate.branches, self.norms[candidate.top], kinds, strict=True):
            where = placement.name(norms.entry is not None, norms.exit is not None, post is not None, parallel)
            site = _told(where, norms, post)
            if norms.partial:
                self.unplaced.append(
                    f"{self._path(branch.added)}: {norms.partial} of {norms.of} products of the branch read the "
                    "stream without its norm"
                )
            scale = branch.scale.times(after)
            made.append(
                (
                    max(t.node for t in branch.terms),
                    Join(
                        -1,
                        self._path(branch.added),
                        where,
                        site.kind if site else None,
                        site.eps if site else None,
                        _scale(candidate.skip.scale.times(after), vector=True),
                        _scale(scale, vector=False),
                        scale.vector,
                        kind,
                        stream,
                        self._branch_tap(branch, candidate.top),
                        left,
                    ),
                )
            )
        for step, added in candidate.longs:
            kind_site = post
            made.append(
                (
                    candidate.top,
                    Join(
                        -1,
                        self._path(added),
                        "post" if post is not None else "none",
                        kind_site.kind if kind_site else None,
                        kind_site.eps if kind_site else None,
                        _scale(step.scale.times(after), vector=True),
                        None,
                        False,
                        "other",
                        self.taps.stream(step.node),
                        None,
                        left,
                    ),
                )
            )
        return made

    def _branch_tap(self, branch: Branch, top: int) -> Any:
        if len(branch.terms) > 1:
            shared = [g for g in branch.terms[0].groups if all(g in t.groups for t in branch.terms)]
            return self.taps.branch(shared[-1], top) if shared and shared[-1] != top else None
        if branch.starts[0][1]:
            return None
        return self.taps.branch(branch.terms[0].node, top) or self._deeper(branch.terms[0].node, top)

    def _deeper(self, node: int, top: int) -> Any:
        """The branch before its scale, where no boundary shows it after."""
        while node not in self.sites.tail and not self.facts.heavy[node]:
            steps = light_step(self.facts, node)
            if len(steps) != 1:
                return None
            node = steps[0].node
            tap = self.taps.branch(node, top)
            if tap is not None:
                return tap
        return None


def _told(where: Placement, norms: placement.Norms, post: Site | None) -> Site | None:
    """The norm that a placement refers to."""
    if where in ("post", "pre+post"):
        return post
    return norms.exit if where == "output" else norms.entry


def _scale(scale: Scale, vector: bool) -> Any:
    if vector and scale.vector:
        return "learned-vector"
    if scale.scalar:
        return "learned"
    return None if abs(scale.constant - 1.0) < 1e-9 else scale.constant


def _numbered(join: Join, index: int) -> Join:
    return replace(join, index=index)
