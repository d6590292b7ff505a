"""read_wiring: one forward pass, its graph, and the wiring in it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import nn

from streamgauge.vocabulary import Join, Norm, Placement, Scale, Tap, Wiring
from streamgauge.wiring import final, placement, plural, remarks, sums, taps, unjoined
from streamgauge.wiring.branch import kind_of
from streamgauge.wiring.candidates import Branch, Candidate, Sites, find_candidates
from streamgauge.wiring.facts import Facts
from streamgauge.wiring.forward import record
from streamgauge.wiring.graph import Graph
from streamgauge.wiring.norms import Site, find_norms
from streamgauge.wiring.streams import drop_inner, light_origins, link
from streamgauge.wiring.sums import ONE, find_sums, light_step


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
        facts = self.facts = Facts(graph)
        sites = self.sites = Sites(find_norms(facts))
        self.taps = taps.Taps(facts)
        found, rest = find_candidates(facts, sites, find_sums(facts))
        kept = drop_inner(facts, link(facts, sites, found, rest))
        self.mixed = plural.find_mixed(facts, sites, kept, rest)
        self.gathered = plural.gathered(facts, kept, rest)
        self.several = plural.shared(facts, kept, rest) | plural.spread(facts, kept)
        self.candidates = plural.one_for_each_branch(facts, kept, self.several)
        self.tops = {c.top: c for c in kept}
        if self.several:  # where streams meet, no branch is added
            meet = {c.top for c in kept if all(self._is_state(b) for b in c.branches)} - self.several
            self.candidates = [c for c in self.candidates if c.top not in meet]
            self.gathered = sorted({*self.gathered, *meet})
        self.norms = {c.top: [placement.norms_of(facts, sites, b) for b in c.branches] for c in kept}
        self.kinds = {c.top: tuple(kind_of(facts, b.region) for b in c.branches) for c in kept}
        self.leaves = {c.top: placement.leave(facts, sites, c.top) for c in kept}
        self.posts = placement.posts(facts, sites, kept, self.norms, self.leaves, self.kinds)

    def wiring(self, notes: list[str]) -> Wiring:
        facts = self.facts
        raw: list[tuple[int, Join]] = []
        for candidate in self.candidates:
            raw.extend(self._several(candidate) if candidate.top in self.several else self._joins(candidate))
        raw.extend(self._mixed(mixed) for mixed in self.mixed)
        apart = [] if self.mixed else unjoined.find(facts, self.sites, self.taps, self.candidates)
        order = sorted([(at, 0, j) for at, j in raw] + [(b.end, 1, b.join) for b in apart], key=lambda e: e[0])
        numbered = [(kind, replace(join, index=i)) for i, (_, kind, join) in enumerate(order)]
        joins = tuple(join for kind, join in numbered if kind == 0)
        bare = tuple(join for kind, join in numbered if kind == 1)
        own = {site.core for site in self.posts.values() if site is not None}
        ends = [b.end for b in apart] + [m.top for m in self.mixed]
        last, roles = final.roles(facts, self.sites, self.candidates, self.norms, own, ends)
        norms = tuple(self._norm(site, roles.get(site.core, "other")) for site in self.sites.all)
        notes = [*notes, *remarks.normed_skips(facts, self.candidates, self.posts)]
        return Wiring(joins, bare, last, norms, tuple(self._unplaced(apart)), tuple(notes))

    def _unplaced(self, apart: list[unjoined.Bare]) -> list[str]:
        facts = self.facts
        lines = remarks.partial(facts, self.candidates, self.norms)
        if self.several:
            where = remarks.shown(self._path(min(self.several)))
            lines.append(f"several streams: {len(self.several)} sums share or spread their branches (first in {where})")
        if self.mixed:
            where = remarks.shown(self._path(self.mixed[0].top))
            lines.append(f"several streams: {len(self.mixed)} sums of mixed states (the first in {where})")
        if self.gathered:
            where = remarks.shown(self._path(self.gathered[0]))
            lines.append(f"{len(self.gathered)} sums of earlier states of the stream (the first in {where})")
        covered = {i for c in self.tops.values() for b in c.branches for i in b.region.reach}
        covered |= {i for b in apart for i in b.nodes} | {i for m in self.mixed for i in m.region.reach}
        return lines + remarks.outside(facts, covered)

    def _path(self, node: int) -> str:
        return remarks.path_of(self.facts, node)

    def _norm(self, site: Site, role: final.Role) -> Norm:
        dtype = str(site.dtype).removeprefix("torch.")
        return Norm(self._path(site.core), site.kind, site.eps, site.size, dtype, site.fused, role)

    def _joins(self, candidate: Candidate) -> list[tuple[int, Join]]:
        """The joins of one sum, each with the node that orders it."""
        post, out = self.posts[candidate.top], self.leaves[candidate.top]
        after = out.scale if candidate.children or post is not None or self._usual(candidate) else ONE
        stream = self.taps.stream(candidate.skip.node)
        left = self.taps.stream(post.end if post is not None else out.stream)
        kinds = self.kinds[candidate.top]
        parallel = len(kinds) > 1 and any(kind != "ffn" for kind in kinds)
        made: list[tuple[int, Join]] = []
        for branch, norms, kind in zip(candidate.branches, self.norms[candidate.top], kinds, strict=True):
            where = placement.name(norms.entry is not None, norms.exit is not None, post is not None, parallel)
            site = _told(where, norms, post)
            scale = branch.scale.times(after)
            state = self._is_state(branch)
            join = Join(
                index=-1,
                path=self._path(branch.added),
                placement=where,
                norm=site.kind if site else None,
                eps=site.eps if site else None,
                skip_scale=_scale(candidate.skip.scale.times(after), vector=True),
                branch_scale=_scale(scale, vector=False),
                per_channel=scale.vector,
                kind="other" if state else kind,
                stream_tap=stream,
                branch_tap=None if state else self._branch_tap(branch, candidate.top),
                out_tap=left,
            )
            made.append((max(t.node for t in branch.terms), join))
        for step, added in candidate.longs:
            join = Join(
                index=-1,
                path=self._path(added),
                placement="none" if post is None else "post",
                norm=None if post is None else post.kind,
                eps=None if post is None else post.eps,
                skip_scale=_scale(step.scale.times(after), vector=True),
                kind="other",
                stream_tap=self.taps.stream(step.node),
                out_tap=left,
            )
            made.append((candidate.top, join))
        return made

    def _usual(self, candidate: Candidate) -> bool:
        """Whether an earlier sum of the stream is scaled as this one is."""
        earlier = candidate.parent
        return earlier is not None and self.leaves[earlier.top].scale == self.leaves[candidate.top].scale

    def _is_state(self, branch: Branch) -> bool:
        """Whether a branch is nothing but a later state of the stream: a long skip."""
        return bool(light_origins(self.facts, branch.terms[0].node, self.tops)) and not branch.starts[0][1]

    def _several(self, candidate: Candidate) -> list[tuple[int, Join]]:
        kinds = self.kinds[candidate.top]
        stream = self.taps.stream(candidate.skip.node)
        return [
            (
                max(t.node for t in branch.terms),
                Join(
                    index=-1,
                    path=self._path(branch.added),
                    placement="unrecognised",
                    kind=kind,
                    stream_tap=stream,
                    branch_tap=self._branch_tap(branch, candidate.top),
                ),
            )
            for branch, kind in zip(candidate.branches, kinds, strict=True)
        ]

    def _mixed(self, mixed: plural.Mixed) -> tuple[int, Join]:
        kind = kind_of(self.facts, mixed.region)
        stream, left = self.taps.stream(mixed.state), self.taps.stream(mixed.top)
        return mixed.top, Join(-1, self._path(mixed.top), "unrecognised", kind=kind, stream_tap=stream, out_tap=left)

    def _branch_tap(self, branch: Branch, top: int) -> Tap | None:
        if len(branch.terms) > 1:
            common = [g for g in branch.terms[0].groups if all(g in t.groups for t in branch.terms)]
            return self.taps.branch(common[-1], top) if common and common[-1] != top else None
        if branch.starts[0][1]:
            return None
        node = branch.terms[0].node
        tap = self.taps.branch(node, top)
        while tap is None and node not in self.sites.tail and not self.facts.heavy[node]:
            steps = light_step(self.facts, node)
            if len(steps) != 1:
                break
            node = steps[0].node
            tap = self.taps.branch(node, top)
        return tap


def _told(where: Placement, norms: placement.Norms, post: Site | None) -> Site | None:
    """The norm that a placement refers to."""
    if where in ("post", "pre+post"):
        return post
    return norms.exit if where == "output" else norms.entry


def _scale(scale: sums.Scale, vector: bool) -> Scale | None:
    if vector and scale.vector:
        return "learned-vector"
    if scale.scalar:
        return "learned"
    return None if abs(scale.constant - 1.0) < 1e-9 else scale.constant
