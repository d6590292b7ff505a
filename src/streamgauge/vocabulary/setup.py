"""How a model is trained, as far as it can be read off: parameters, optimizer, schedule, precision, probes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import with_config

from streamgauge.vocabulary.word import JSON, Word


@with_config(JSON)
@dataclass(frozen=True)
class Parameter(Word):
    """One parameter at the moment of the check.

    owner       class name of the module that holds it; `path` its name in the model
    rms         root mean square of its values; grad_rms that of its gradient in one backward pass, None without one
    largest_grad   largest absolute entry of the gradient, 0.0 where all are zero, None where there is no gradient
    shared_with names of the other places that hold the same tensor (tied weights)
    """

    path: str
    shape: tuple[int, ...]
    dtype: str
    owner: str = ""
    trainable: bool = True
    rms: float | None = None
    grad_rms: float | None = None
    largest_grad: float | None = None
    shared_with: tuple[str, ...] = ()


@with_config(JSON)
@dataclass(frozen=True)
class ParameterGroup(Word):
    """One group of the optimizer; `paths` name its parameters. peak_lr: what a schedule will reach (initial_lr)."""

    paths: tuple[str, ...]
    lr: float
    peak_lr: float | None = None
    weight_decay: float = 0.0


@with_config(JSON)
@dataclass(frozen=True)
class OptimizerSetup(Word):
    """Kind, groups and constants of the optimizer; None for a constant that this kind has not."""

    name: str
    groups: tuple[ParameterGroup, ...] = ()
    beta1: float | None = None
    beta2: float | None = None
    eps: float | None = None
    momentum: float | None = None
    steps_taken: int = 0


@with_config(JSON)
@dataclass(frozen=True)
class Schedule(Word):
    """What is known of the learning rate over time.

    name            class of the scheduler, or "given"; None where the rate is constant as far as was seen
    warmup_steps    optimizer steps until the peak, where known
    total_steps     optimizer steps of the run, where known
    steps_per_tick  optimizer steps between two calls of scheduler.step(), where that was seen (1: every step)
    planned         multipliers of the peak rate at ticks 0, 1, 2 ... that the scheduler will give, where they were read
    """

    name: str | None = None
    warmup_steps: int | None = None
    total_steps: int | None = None
    steps_per_tick: float | None = None
    planned: tuple[float, ...] = ()


@with_config(JSON)
@dataclass(frozen=True)
class Handling(Word):
    """What the loop does around a step: clipping, accumulation, precision. None where it was neither seen nor given."""

    clip: float | None = None
    accumulate: int | None = None
    autocast: str | None = None
    loss_scale: float | None = None


@with_config(JSON)
@dataclass(frozen=True)
class Flag(Word):
    """An attribute of a module, or a field of its config, that speaks of norms: `normalize_before=True`."""

    path: str
    name: str
    value: bool | str


@with_config(JSON)
@dataclass(frozen=True)
class Probe(Word):
    """One experiment on the model at init: what was changed in the input, and how much the output moved.

    name     "future" (tokens after a position), "padding" (the content of masked tokens), "input" (every token),
             "skip" (a sublayer left out: `place` says which)
    change   largest change of the outputs that should not move (future, padding), or the mean change of those that
             should (input), relative to the rms of the outputs; for "skip" the change of the loss in nats
    noise    the same for a repetition without any change: what dropout and rounding do by themselves
    """

    name: Literal["future", "padding", "input", "skip"]
    change: float
    noise: float = 0.0
    place: str = ""


@with_config(JSON)
@dataclass(frozen=True)
class Origin(Word):
    """The operation that made the first value that is not finite, in one pass whose loss or gradient is not.

    op           name of the operation: "softmax", "div", "mm" ...
    path         the module whose call ran it, "" for the model's own code or the loss
    flow         "forward" or "backward"
    value        "nan" or "inf"
    dtype        of its output; `largest` the largest finite absolute value among its inputs
    masked_rows  rows of its input that are masked at every entry (softmax and attention), 0 where there is none
    zero_divisor True where it divided by zero (an inverse root of zero included)
    step         which batch it was, counted from 0
    """

    op: str
    path: str = ""
    flow: Literal["forward", "backward"] = "forward"
    value: Literal["nan", "inf"] = "nan"
    dtype: str = "float32"
    largest: float | None = None
    masked_rows: int = 0
    zero_divisor: bool = False
    step: int = 0
