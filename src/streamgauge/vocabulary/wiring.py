"""Wiring: joins, norms and where to hook them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from pydantic import with_config

from streamgauge.vocabulary.word import JSON, Word

Placement = Literal["pre", "post", "sandwich", "output", "parallel-pre", "pre+post", "none", "unrecognised"]
NormKind = Literal["layernorm", "rmsnorm", "batchnorm", "groupnorm", "scalenorm"]
BranchKind = Literal["attention", "cross-attention", "ffn", "mixer", "other"]
Scale = float | Literal["learned", "learned-vector"]


@with_config(JSON)
@dataclass(frozen=True)
class Tap(Word):
    """Where a tensor can be picked up with a module hook.

    `slot` counts the tensors among the flattened (args, kwargs) on side "input", or among the flattened outputs on
    side "output"; `call` counts the executions of this module within one forward pass (shared layers run often).
    """

    path: str
    side: Literal["input", "output"]
    slot: int = 0
    call: int = 0


@with_config(JSON)
@dataclass(frozen=True)
class Join(Word):
    """One place where a branch meets the residual stream.

    In `Wiring.joins`: a residual addition, skip_scale * skip + branch_scale * branch. In `Wiring.unjoined`: a
    sublayer whose output replaces the stream, with no addition (placement "none", scales None).

    index       position in execution order, counted over joins and unjoined sublayers together
    path        the module that holds the addition (the innermost module whose call executes it)
    placement   where the norm stands
    norm, eps   kind and epsilon of the norm that the placement refers to
    skip_scale, branch_scale   a constant, "learned" (one number), "learned-vector" (one per channel), None when 1
    per_channel True when a learned vector over channels multiplies the branch (LayerScale)
    kind        what the branch computes
    stream_tap, branch_tap, out_tap   where hooks find the stream that enters, the branch's output, and the stream
                that leaves (after the post norm, where there is one); None where no module boundary shows the tensor
    """

    index: int
    path: str
    placement: Placement
    norm: NormKind | None = None
    eps: float | None = None
    skip_scale: Scale | None = None
    branch_scale: Scale | None = None
    per_channel: bool = False
    kind: BranchKind = "other"
    stream_tap: Tap | None = None
    branch_tap: Tap | None = None
    out_tap: Tap | None = None


@with_config(JSON)
@dataclass(frozen=True)
class Norm(Word):
    """One normalization executed in the forward pass.

    `size` is the number of elements that each statistic is taken over; `dtype` the one the statistics are held in
    (for example "float32"); `fused` True when one kernel computes it and False when it is written out in the graph.
    """

    path: str
    kind: NormKind
    eps: float | None = None
    size: int | None = None
    dtype: str = "float32"
    fused: bool = True
    role: Literal["join", "final", "embedding", "qk", "other"] = "other"


@with_config(JSON)
@dataclass(frozen=True)
class Wiring(Word):
    """What was read off a model: its joins in execution order, and everything that could not be placed.

    joins       residual additions
    unjoined    sublayers (attention, ffn, mixer) whose output goes on without any residual addition
    final_norm  a norm after the last join beyond the join's own post norm
    norms       every norm executed
    unplaced    one line for each thing the graph shows that could not be placed
    notes       one line for each assumption made (inputs guessed, a compiled model read through its original ...)
    """

    joins: tuple[Join, ...] = ()
    unjoined: tuple[Join, ...] = ()
    final_norm: bool = False
    norms: tuple[Norm, ...] = ()
    unplaced: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def sublayers(self) -> tuple[Join, ...]:
        """Joins and unjoined sublayers together, in execution order: the places where the gauge measures."""
        return tuple(sorted((*self.joins, *self.unjoined), key=lambda j: j.index))

    @property
    def places(self) -> tuple[Join, ...]:
        """Where the gauge measures: the sublayers, without the further skips that end in another join's sum (B2T).

        Such a skip has no branch of its own, and its stream leaves where that of the other join does.
        """
        ends = Counter(join.out_tap for join in self.joins)
        return tuple(
            j
            for j in self.sublayers
            if not (j.branch_tap is None and j.kind == "other" and j.out_tap and ends[j.out_tap] > 1)
        )

    @property
    def placements(self) -> dict[str, int]:
        """How often each placement occurs among the joins."""
        return dict(Counter(j.placement for j in self.joins))

    def __str__(self) -> str:
        if not self.joins:
            return f"no joins ({len(self.unjoined)} sublayers without a residual)"
        kinds = ", ".join(f"{n} {p}" for p, n in self.placements.items())
        bare = f", {len(self.unjoined)} sublayers without one" if self.unjoined else ""
        return f"{len(self.joins)} joins ({kinds}){bare}, {'with' if self.final_norm else 'no'} final norm"
