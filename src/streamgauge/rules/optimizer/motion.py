"""How far one step of the optimizer moves the weights, from its kind, its constants and one gradient."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from streamgauge.vocabulary import OptimizerSetup, Parameter, ParameterGroup

ADAPTIVE = ("adam", "lion", "lamb", "adafactor", "rprop", "adagrad", "muon", "shampoo", "soap", "sophia", "adan")
"""In the name of an optimizer: its step does not scale with the gradient."""


def adaptive(setup: OptimizerSetup) -> bool:
    """True where the size of a step is set by the learning rate and not by the size of the gradient."""
    return any(kind in setup.name.lower() for kind in ADAPTIVE)


def adam(setup: OptimizerSetup) -> bool:
    """True where the step is m / (sqrt(v) + eps): Adam, AdamW, NAdam, RAdam and their kin."""
    return "adam" in setup.name.lower() and setup.eps is not None


def peak(group: ParameterGroup) -> float:
    """The rate that the schedule will reach, else the one in force."""
    return group.peak_lr if group.peak_lr is not None else group.lr


def highest_rate(setup: OptimizerSetup) -> float:
    """max over the groups of `peak`; 0 without groups."""
    return max((peak(group) for group in setup.groups), default=0.0)


def rates(setup: OptimizerSetup, parameters: Iterable[Parameter]) -> dict[str, float]:
    """path -> peak learning rate, of the trainable parameters that a group holds."""
    of = {path: peak(group) for group in setup.groups for path in group.paths}
    return {
        p.path: next(of[name] for name in (p.path, *p.shared_with) if name in of)
        for p in parameters
        if p.trainable and any(name in of for name in (p.path, *p.shared_with))
    }


def step_rms(parameter: Parameter, rate: float, setup: OptimizerSetup) -> float | None:
    """rms of one update of this parameter, None where it cannot be told.

    Adam and other adaptive optimizers: lr g / (g + eps), the first step; SGD: lr g / (1 - momentum), g the rms of the
    gradient.
    """
    gradient = parameter.grad_rms
    if adaptive(setup):
        if not adam(setup) or gradient is None:
            return rate
        return rate * gradient / (gradient + (setup.eps or 0.0)) if gradient else 0.0
    if gradient is None or "sgd" not in setup.name.lower():
        return None
    return rate * gradient / (1 - min(setup.momentum or 0.0, 0.999))


def update_ratios(parameters: Sequence[Parameter], setup: OptimizerSetup) -> dict[str, float]:
    """path -> rms(update) / rms(weight) of the trainable matrices whose weights are not zero."""
    rate = rates(setup, parameters)
    ratios = {}
    for p in parameters:
        if p.path in rate and len(p.shape) > 1 and p.rms:
            step = step_rms(p, rate[p.path], setup)
            if step is not None:
                ratios[p.path] = step / p.rms
    return ratios


def weighted_median(values: Sequence[float], weights: Sequence[float]) -> float:
    """The value at half of the total weight; NaN of an empty sequence."""
    if not values:
        return float("nan")
    order = np.argsort(values)
    mass = np.cumsum(np.asarray(weights, dtype=np.float64)[order])
    return float(np.asarray(values, dtype=np.float64)[order][int(np.searchsorted(mass, mass[-1] / 2))])


def size(parameter: Parameter) -> int:
    """Number of elements."""
    return int(np.prod(parameter.shape)) if parameter.shape else 1


def median_ratio(parameters: Sequence[Parameter] | None, setup: OptimizerSetup | None) -> float | None:
    """The update-to-weight ratio of the median weight over all matrices; None where it cannot be told."""
    if parameters is None or setup is None:
        return None
    ratios = update_ratios(parameters, setup)
    sizes = {p.path: size(p) for p in parameters}
    if not ratios:
        return None
    return weighted_median(list(ratios.values()), [sizes[path] for path in ratios])
