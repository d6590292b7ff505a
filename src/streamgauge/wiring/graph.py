"""The data-flow graph of one forward pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from streamgauge.wiring.calls import CallLog


class Ref(NamedTuple):
    """Stands for a tensor among the recorded arguments of an operation."""

    node: int


@dataclass(slots=True)
class Node:
    """One tensor value.

    op      name of the operation without overload and without the underscore of in-place forms
    inputs  the nodes it was computed from, in the order of the arguments
    args    the arguments of the operation with `Ref` in place of tensors
    out     which of the operation's outputs this is
    call    the module call it was made in
    data    computed from the model's inputs;  carrier: and holds content (not just masks or positions)
    trained computed from parameters, and from nothing of the inputs
    value   the number it holds, where it is one constant number
    """

    id: int
    op: str
    inputs: tuple[int, ...]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    shape: tuple[int, ...]
    dtype: torch.dtype
    call: int
    out: int = 0
    data: bool = False
    carrier: bool = False
    trained: bool = False
    random: bool = False
    value: float | None = None

    @property
    def numel(self) -> int:
        n = 1
        for size in self.shape:
            n *= size
        return n


@dataclass
class Graph:
    """The recorded graph, with who uses what and what matters for the primary output."""

    nodes: list[Node]
    log: CallLog
    outputs: tuple[int, ...]
    primary: int
    users: list[list[int]] = field(default_factory=list)
    live: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        self.live = bytearray(len(self.nodes))
        for i in self.outputs:
            self.live[i] = 1
        for node in reversed(self.nodes):
            if self.live[node.id]:
                for i in node.inputs:
                    self.live[i] = 1
        self.users = [[] for _ in self.nodes]
        for node in self.nodes:
            if self.live[node.id]:
                for i in dict.fromkeys(node.inputs):
                    self.users[i].append(node.id)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)
