"""Rules on the size of the learning rate."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from streamgauge.rules.evidence import CannotJudge
from streamgauge.rules.harm import warming_up
from streamgauge.rules.optimizer.motion import adaptive, highest_rate, median_ratio
from streamgauge.rules.optimizer.trend import FEWEST, Trend, trend
from streamgauge.rules.outcome import curve_of
from streamgauge.rules.rule import Find, rule
from streamgauge.vocabulary import Finding, OptimizerSetup, Parameter, Quantity, Readings, Severity


@rule(
    "O001",
    "lr-too-high",
    explains=(
        "non-finite",
        "identity-layer",
        "loss-spike",
        "exploding-gradient",
        "vanishing-gradient",
        "token-collapse",
        "unigram-plateau",
        "attention-logit-growth",
        "attention-entropy-collapse",
        "layer-collapse",
        "always-clipping",
        "stable-rank-drop",
    ),
)
def lr_too_high(
    find: Find,
    loss: Readings | None = None,
    setup: OptimizerSetup | None = None,
    parameters: tuple[Parameter, ...] | None = None,
    lr: Readings | None = None,
    grad_norm: Readings | None = None,
    *,
    burst: float = 1.0,
    lost: float = 0.5,
    surge: float = 30.0,
    overwrite: float = 1.0,
    heavy: float = 0.3,
    tiny: float = 1e-5,
) -> Iterator[Finding]:
    """The loss rises at the learning rate that the run will use.

    What it does:
        Looks at the losses of the rehearsal at the peak learning rate, or of the run: do they end above where they
        began, burst and not come back, or give back what had been gained? Before any step it compares one step of the
        optimizer with the weights that it changes.
    Why it matters:
        Beyond 2 / (largest eigenvalue of the Hessian), for Adam 38 / (that of the preconditioned one), a step makes
        the loss larger. A run that starts there diverges, or ends on the plateau of the token frequencies.
    Threshold:
        The median of the last quarter of the losses above the first one by 0.1 nat and by four times the batch noise:
        error. A loss that reaches `burst` nats above the first and does not end below it, or is followed by a value
        that is no number: error; one that comes back, at steps of `heavy` of the median weight: warning. A fall of
        more than 0.5 nat of which more than `lost` is given back at the end: error. The same with a gradient norm
        that ends `surge` times above its first median where the loss then is no number. A step of Adam that is
        `overwrite` times as large as the median weight: warning, where nothing was rehearsed. No finding where a step
        changes the weights by less than `tiny` of themselves: the cause is another.
    How to fix:
        Lower the peak rate by a factor 3, rehearse again, and repeat until the loss falls; warm up to it. A model
        that needs less than 1e-4 at width 512 has a fault elsewhere: look at the wiring.
    Example:
        4 Pre-LN blocks of width 64 with AdamW at 0.3: the loss goes from 4.2 to 20 nats within 5 steps and ends at the
        level of the token frequencies; at 1e-3 it falls from the first step.
    Source:
        Cohen+ 2022 (arXiv 2207.14484): 38/lr for Adam with beta1 0.9; Gilmer+ 2021 (2110.04369). The margins are
        calibrated on this project's healthy runs (docs/calibration.md).
    """
    ratio = median_ratio(parameters, setup)
    rate = highest_rate(setup) if setup is not None else float("nan")
    if lr is not None:
        rate = float(np.nanmax(curve_of(lr)))
    evidence = {"lr": Quantity(rate, "1")} if rate == rate else {}
    if ratio is not None:
        evidence["update_to_weight"] = Quantity(ratio, "1")
    at = f" at learning rate {rate:.3g}" if evidence else ""
    seen = trend(loss) if loss is not None else None
    lost_at = _lost_at(seen, grad_norm)
    enough = seen is not None and (seen.steps >= FEWEST - 1 or lost_at is not None)
    if not enough or seen is None:
        if ratio is None or setup is None:
            raise CannotJudge("needs a rehearsal, or the optimizer and the model's parameters")
        if ratio >= overwrite and adaptive(setup):
            yield find(
                "warning",
                "optimizer",
                f"one step{at} changes the median weight by {ratio:.2g} times its own size",
                evidence=evidence,
                cause="Adam moves each weight by about the learning rate, whatever its gradient",
                fix=f"lower the peak learning rate to {rate * 0.03 / ratio:.1g}, at which a step changes the weights "
                "by 3 %, and warm up to it",
            )
        return
    story = _story(seen, burst, lost) or _surged(seen, lost_at, grad_norm, burst, surge)
    severity: Severity = "error"
    if not story and ratio is not None and ratio >= heavy and seen.peak > seen.initial + max(burst, seen.margin):
        severity = "warning"
        story = f"the loss bursts from {seen.initial:.2f} to {seen.peak:.2f} nats, and one step changes the median "
        story += f"weight by {ratio:.2g} of its size,"
    if not story or (ratio is not None and ratio < tiny):
        return
    yield find(
        severity,
        "run",
        f"{story}{at}",
        evidence={**seen.evidence, **evidence},
        cause="the steps are longer than the curvature of the loss allows: each undoes what the one before gained",
        fix=f"lower the peak learning rate to {rate / 3:.2g} (a third), rehearse again, and repeat until the loss "
        "falls; warm up to it and clip the gradient norm at 1",
    )


def _story(seen: Trend, burst: float, lost: float) -> str:
    """What the loss did, "" where it did well."""
    if seen.end > seen.initial + seen.margin:
        return f"the loss rises from {seen.initial:.2f} to {seen.end:.2f} nats in {seen.steps} steps"
    if seen.peak > seen.initial + max(burst, seen.margin) and seen.end > seen.initial - seen.margin:
        return f"the loss bursts from {seen.initial:.2f} to {seen.peak:.2f} nats and ends at {seen.end:.2f}"
    gained, given_back = seen.initial - seen.lowest, seen.end - seen.lowest
    if gained > max(0.5, seen.margin) and given_back > max(lost * gained, seen.margin):
        return f"the loss had fallen to {seen.lowest:.2f} nats and rises back to {seen.end:.2f}"
    return ""


def _lost_at(seen: Trend | None, grad_norm: Readings | None) -> int | None:
    """The step at which loss or gradient is no number for the first time."""
    steps = [] if seen is None or seen.broken is None else [seen.broken]
    if grad_norm is not None:
        steps += grad_norm.steps[~np.isfinite(grad_norm.values[:, 0])][:1].tolist()
    return min(steps, default=None)


def _surged(seen: Trend, lost_at: int | None, grad_norm: Readings | None, burst: float, surge: float) -> str:
    """Whether loss or gradient norm announced that there would be no number."""
    if lost_at is None:
        return ""
    if seen.highest > seen.initial + max(burst, 0.1):
        return f"the loss bursts from {seen.initial:.2f} to {seen.highest:.2f} nats, and is lost at step {lost_at}"
    norms = curve_of(grad_norm)[grad_norm.steps < lost_at] if grad_norm is not None else np.empty(0)
    norms = norms[np.isfinite(norms)]
    if len(norms) < 4 or not norms[-1] > surge * float(np.median(norms[: max(3, len(norms) // 2)])):
        return ""
    return f"the gradient norm surges to {norms[-1]:.3g} before the loss is lost at step {lost_at}"


@rule("O002", "lr-too-low", explains=("unigram-plateau",))
def lr_too_low(
    find: Find,
    setup: OptimizerSetup,
    parameters: tuple[Parameter, ...],
    loss: Readings | None = None,
    lr: Readings | None = None,
    pretrained: bool | None = None,
    vocab: int | None = None,
    *,
    still: float = 1e-5,
    low: float = 2e-4,
) -> Iterator[Finding]:
    """A step changes the weights too little for the run to get anywhere.

    What it does:
        Compares one step at the peak learning rate with the weights that it changes: rms(update) / rms(weight), the
        median over all matrices, for Adam from the rate and eps, for SGD from the measured gradient.
    Why it matters:
        Weights drawn at random have to turn by a large angle. At a ratio r it takes at least 1 / r steps in the same
        direction; at 1e-5, a hundred thousand.
    Threshold:
        A loss that did not fall in rehearsal, and a ratio below `still`, or below `low` where the first loss is that
        of a uniform guess, so that the weights are drawn and not loaded: warning. Otherwise below `low`: info.
        Healthy runs lie at 1e-3 to 1e-1 at their start.
    How to fix:
        Raise the peak learning rate to where a step changes the weights by about 1 %.
    Example:
        AdamW at 1e-7 on weights of rms 0.1: a step changes them by 1e-6 of themselves, and 40 steps leave the loss
        where it was.
    Source:
        Ratios of 1e-3 as the aim: Karpathy's and DeepDiagnosis' rule; the edges are calibrated on this project's
        healthy runs (docs/calibration.md).
    """
    ratio = median_ratio(parameters, setup)
    if ratio is None:
        raise CannotJudge(f"the size of a step of {setup.name} cannot be told, or no matrix is trained")
    if ratio == 0 or ratio >= low:
        return
    seen = trend(loss) if loss is not None else None
    flat = seen is not None and seen.steps >= FEWEST - 1 and abs(seen.end - seen.initial) <= seen.margin
    drawn = vocab is not None and seen is not None and abs(seen.initial - math.log(vocab)) < 0.5
    rate = highest_rate(setup)
    if lr is not None and warming_up(lr):
        raise CannotJudge("the learning rate is still warming up")
    evidence = {"update_to_weight": Quantity(ratio, "1"), "lr": Quantity(rate, "1")}
    yield find(
        "warning" if flat and (ratio < still or drawn) and not pretrained else "info",
        "optimizer",
        f"one step at learning rate {rate:.3g} changes the median weight by {ratio:.2g} of its size"
        + (f"; the loss stays at {seen.end:.2f} nats" if flat and seen is not None else ""),
        evidence=evidence | (seen.evidence if seen is not None else {}),
        cause="at this rate the weights need more steps than a run has to turn away from where they were drawn",
        fix=f"raise the peak learning rate to about {rate * 0.01 / ratio:.1g}, at which a step changes the weights by "
        "1 %, and rehearse again",
    )
