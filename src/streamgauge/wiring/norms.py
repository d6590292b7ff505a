"""Recognise normalizations by their arithmetic, fused or written out.

A written-out norm is z * r with z = x or x - mean(x), and r = 1 / sqrt(s + eps), 1 / (sqrt(s) + eps) or
1 / max(sqrt(s), eps), where s is the mean square or the variance of x or the sum of its squares (the L2 form).
Each node gets at most one `Stat`, what it is of x, from the stats of its inputs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch

from streamgauge.vocabulary import NormKind
from streamgauge.wiring import ops
from streamgauge.wiring.facts import Facts
from streamgauge.wiring.graph import Node, Ref
from streamgauge.wiring.stats import Stat, Statistics


@dataclass
class Site:
    """One norm in the graph: from `x` (a root) through `core`, the normed value, to `end`, behind gain and bias."""

    x: int
    core: int
    end: int
    kind: NormKind
    eps: float | None
    size: int
    dtype: torch.dtype
    fused: bool
    gained: bool
    inner: set[int] = field(default_factory=set)
    tail: set[int] = field(default_factory=set)


def find_norms(facts: Facts) -> list[Site]:
    """All norms over content, in execution order."""
    return _Finder(facts).sites


class _Finder:
    def __init__(self, facts: Facts) -> None:
        self.facts, self.nodes = facts, facts.nodes
        self.statistics = Statistics(facts, self._product)
        self.sites: list[Site] = []
        for node in self.nodes:
            if not node.carrier or not facts.graph.live[node.id]:
                continue
            if node.op not in ops.FUSED_NORMS:
                self.statistics.add(node)
            elif node.out == 0:
                self._fused(node)

    def _product(self, node: Node, operand: int, stat: Stat) -> bool:
        """Whether node = operand * stat is a normed value; then it becomes a site."""
        operand, gained = self._ungained(operand)
        own = self.statistics.stats.get(operand)
        centred = own is not None and own.what == "centred" and own.x == stat.x
        if stat.size < 2 or (not centred and self.facts.root[operand] != stat.x):
            return False
        kind: NormKind = "layernorm" if centred else "scalenorm" if stat.summed else "rmsnorm"
        self._finish(Site(stat.x, node.id, node.id, kind, _tidy(stat.eps), stat.size, stat.dtype, False, gained))
        return True

    def _ungained(self, operand: int) -> tuple[int, bool]:
        """The tensor that a trained gain multiplies, and whether there is one: g * z / sqrt(s + eps)."""
        node = self.nodes[operand]
        if node.op == "mul" and len(node.inputs) == 2:
            trained = [self.nodes[i].trained for i in node.inputs]
            if trained.count(True) == 1:
                return node.inputs[trained.index(False)], True
        return operand, False

    def _fused(self, node: Node) -> None:
        kind: NormKind = ops.FUSED_NORMS[node.op]  # type: ignore[assignment]
        source = self.nodes[node.inputs[0]]
        floats = [a for a in node.args if isinstance(a, float)]
        eps = floats[-1] if floats else None
        gained = len(node.inputs) > 1
        if kind in ("layernorm", "rmsnorm"):
            size = math.prod(int(n) for n in node.args[1]) if isinstance(node.args[1], tuple) else source.shape[-1]
            if eps is None:
                eps = torch.finfo(node.dtype).eps
        elif kind == "groupnorm":
            size = source.numel // max(1, source.shape[0] * int(node.args[6] if len(node.args) > 6 else node.args[1]))
        else:
            size = source.numel // max(1, source.shape[1] if len(source.shape) > 1 else 1)
        dtype = torch.float64 if node.dtype == torch.float64 else torch.float32
        self._finish(Site(self.facts.root[source.id], node.id, node.id, kind, _tidy(eps), size, dtype, True, gained))

    def _finish(self, site: Site) -> None:
        self._inside(site)
        self._affine(site)
        self.sites.append(site)

    def _inside(self, site: Site) -> None:
        """The nodes between x and the normed value."""
        todo = [site.core]
        while todo:
            i = todo.pop()
            if i in site.inner or i == site.x:
                continue
            site.inner.add(i)
            todo.extend(j for j in self.nodes[i].inputs if j > site.x and self.nodes[j].carrier)

    def _affine(self, site: Site) -> None:
        """Follow gain, bias and casts behind the normed value; tell the L2 form's kind by its gain."""
        at, biased = site.core, False
        site.tail.add(at)
        pending: set[int] = set()
        while True:
            users = self.facts.live_users(at)
            if len(users) != 1:
                break
            node = self.nodes[users[0]]
            others = [i for i in node.inputs if i != at]
            if node.op in ops.SAME:
                at = node.id
                pending.add(at)
                if node.op in ("_to_copy", "to", "type_as"):
                    site.end = at
                    site.tail |= pending
                continue
            if biased or node.op not in ("mul", "add", "addcmul"):
                break
            constant = self._constant(node, at)
            trained = bool(others) and all(self.nodes[i].trained for i in others)
            if node.op == "mul" and constant is not None:
                if site.kind != "scalenorm" or not math.isclose(constant**2, site.size, rel_tol=1e-3):
                    break
                site.kind = "rmsnorm"
            elif node.op == "mul" and trained and not site.gained:
                site.gained = True
                if site.kind == "scalenorm" and self.nodes[others[0]].numel > 1:
                    site.kind = "rmsnorm"
            elif node.op in ("add", "addcmul") and trained:
                biased = True
            else:
                break
            at = site.end = node.id
            site.tail |= pending | {at}

    def _constant(self, node: Node, at: int) -> float | None:
        for argument in node.args[:2]:
            if isinstance(argument, int | float) and not isinstance(argument, Ref):
                return float(argument)
            if isinstance(argument, Ref) and argument.node != at:
                return self.nodes[argument.node].value
        return None


def _tidy(eps: float | None) -> float | None:
    """Undo float32 rounding: 9.99999974e-06 was written 1e-05."""
    if eps is None or float(np.float32(eps)) != eps:
        return eps
    short = float(f"{eps:.3g}")
    return short if float(np.float32(short)) == eps else eps
