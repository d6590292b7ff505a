"""Where module hooks find the stream and the branches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, cast

from streamgauge.vocabulary import Tap
from streamgauge.wiring.calls import Crossing
from streamgauge.wiring.facts import Facts


class Taps:
    """All module boundaries of a forward pass, by the node that crosses them."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.at: dict[int, list[Crossing]] = {}
        for crossing in facts.graph.log.crossings:
            self.at.setdefault(crossing.node, []).append(crossing)

    def stream(self, node: int) -> Tap | None:
        """The first boundary at which the tensor stands that all uses of this value go through."""
        return self._first(self._equals(node))

    def branch(self, node: int, before: int) -> Tap | None:
        """The last boundary, an output if there is one, that the branch's value crosses before the sum."""
        crossings = [c for i in self._equals(node) if i < before for c in self.at.get(i, ())]
        outputs = [c for c in crossings if c.side == "output"]
        chosen = outputs or crossings
        return self._tap(chosen[-1]) if chosen else None

    def _equals(self, node: int) -> list[int]:
        """The node and its copies in other layout that the same uses go through, in execution order."""
        facts, chain = self.facts, [node]
        at = node
        while facts.same(facts.nodes[at]) and len(facts.live_users(facts.nodes[at].inputs[0])) == 1:
            at = facts.nodes[at].inputs[0]
            chain.insert(0, at)
        at = node
        while len(facts.live_users(at)) == 1 and facts.same(facts.nodes[facts.live_users(at)[0]]):
            at = facts.live_users(at)[0]
            chain.append(at)
        return chain

    def _first(self, nodes: Iterable[int]) -> Tap | None:
        for node in nodes:
            if node in self.at:
                return self._tap(self.at[node][0])
        return None

    def _tap(self, crossing: Crossing) -> Tap:
        call = self.facts.graph.log.calls[crossing.call]
        return Tap(call.path, cast("Literal['input', 'output']", crossing.side), crossing.slot, call.times)
