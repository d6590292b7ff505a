"""The words that every room shares: Wiring, Join, Reading, Finding, Verdict.

Each is a frozen dataclass that goes to JSON and back without loss (`to_json`, `from_json`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from streamgauge.errors import InputError

Placement = Literal["pre", "post", "sandwich", "output", "parallel-pre", "pre+post", "none", "unrecognised"]
NormKind = Literal["layernorm", "rmsnorm", "batchnorm", "groupnorm", "scalenorm"]
BranchKind = Literal["attention", "cross-attention", "ffn", "mixer", "other"]
Scale = float | Literal["learned", "learned-vector"]
Severity = Literal["info", "warning", "error"]
Answer = Literal["trains", "at risk", "will not train", "not assessed"]

_JSON = ConfigDict(ser_json_inf_nan="strings", extra="forbid")


_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}


def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    """Built once per class: building one costs milliseconds."""
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


class Word:
    """Mixin: JSON there and back for a frozen dataclass of plain values."""

    def to_json(self) -> str:
        return _adapter(type(self)).dump_json(self).decode()

    def to_dict(self) -> dict[str, Any]:
        return _adapter(type(self)).dump_python(self, mode="json")  # type: ignore[no-any-return]

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        try:
            return _adapter(cls).validate_json(text)  # type: ignore[no-any-return]
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the top level"
            raise InputError(f"not a {cls.__name__} in JSON: {first['msg']} at {where}") from None

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        return _adapter(cls).validate_python(data)  # type: ignore[no-any-return]


# -- wiring ------------------------------------------------------------------------------------------------------


@with_config(_JSON)
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


@with_config(_JSON)
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


@with_config(_JSON)
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


@with_config(_JSON)
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
    def placements(self) -> dict[str, int]:
        """How often each placement occurs among the joins."""
        return dict(Counter(j.placement for j in self.joins))

    def __str__(self) -> str:
        if not self.joins:
            return f"no joins ({len(self.unjoined)} sublayers without a residual)"
        kinds = ", ".join(f"{n} {p}" for p, n in self.placements.items())
        bare = f", {len(self.unjoined)} sublayers without one" if self.unjoined else ""
        return f"{len(self.joins)} joins ({kinds}){bare}, {'with' if self.final_norm else 'no'} final norm"


# -- readings ----------------------------------------------------------------------------------------------------


@with_config(_JSON)
@dataclass(frozen=True)
class Place(Word):
    """Where a reading was taken: a sublayer of the wiring, or index -1 for the whole run."""

    index: int
    path: str
    kind: str = "other"

    def __str__(self) -> str:
        return self.path if self.index < 0 else f"{self.index}:{self.path}"


RUN = Place(-1, "run", "run")


@with_config(_JSON)
@dataclass(frozen=True)
class Reading(Word):
    """One number measured at one place at one step."""

    step: int
    signal: str
    place: int
    value: float


@dataclass(frozen=True)
class Readings:
    """All values of one signal in a run: `values` float64 [steps, places], NaN where nothing was measured."""

    signal: str
    values: np.ndarray[Any, np.dtype[np.float64]]
    steps: np.ndarray[Any, np.dtype[np.int64]]
    places: tuple[Place, ...]
    unit: str

    def __post_init__(self) -> None:
        if self.values.shape != (len(self.steps), len(self.places)):
            raise ValueError(f"{self.signal}: values {self.values.shape}, {len(self.steps)} steps, {len(self.places)}")

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[Reading]:
        for i, step in enumerate(self.steps):
            for j, place in enumerate(self.places):
                if not np.isnan(self.values[i, j]):
                    yield Reading(int(step), self.signal, place.index, float(self.values[i, j]))

    @property
    def last(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The values at the last step, [places]."""
        return np.asarray(self.values[-1])

    @property
    def first(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The values at the first step, [places]."""
        return np.asarray(self.values[0])


# -- findings ----------------------------------------------------------------------------------------------------


@with_config(_JSON)
@dataclass(frozen=True)
class Quantity(Word):
    """A number (or a name) that a finding rests on, with its unit; "1" for a pure number.

    A value that is not finite is held by its name: "nan", "inf", "-inf".
    """

    value: float | int | str | None
    unit: str = "1"

    def __post_init__(self) -> None:
        if isinstance(self.value, float) and not np.isfinite(self.value):  # JSON has no NaN
            object.__setattr__(self, "value", str(self.value))

    def __str__(self) -> str:
        shown = f"{self.value:.4g}" if isinstance(self.value, float) else str(self.value)
        return shown if self.unit == "1" else f"{shown} {self.unit}"


@with_config(_JSON)
@dataclass(frozen=True)
class Finding(Word):
    """What a rule says.

    place is a module path or a range of layers; cause says why it happens, fix what to change, source where the
    threshold or the remedy comes from; consequences are the findings that this one explains.
    """

    code: str
    name: str
    severity: Severity
    place: str
    message: str
    evidence: dict[str, Quantity] = field(default_factory=dict)
    cause: str = ""
    fix: str = ""
    source: str = ""
    consequences: tuple[Finding, ...] = ()


@with_config(_JSON)
@dataclass(frozen=True)
class NotAssessed(Word):
    """A rule that could not judge, and why."""

    code: str
    name: str
    reason: str


@with_config(_JSON)
@dataclass(frozen=True)
class Verdict(Word):
    """Will it train: the answer, its probability, and the largest learning rate expected to train."""

    answer: Answer
    reason: str = ""
    probability: float | None = None
    max_lr: float | None = None
    max_lr_interval: tuple[float, float] | None = None

    def __str__(self) -> str:
        return f"{self.answer}: {self.reason}" if self.reason else self.answer
