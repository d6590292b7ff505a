"""Rules on Adam's constants."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamgauge.rules.evidence import CannotJudge
from streamgauge.rules.optimizer.motion import adam, size, weighted_median
from streamgauge.rules.optimizer.spikes import spikes
from streamgauge.rules.outcome import curve_of
from streamgauge.rules.rule import Find, rule
from streamgauge.vocabulary import Finding, Handling, OptimizerSetup, Parameter, Quantity, Readings


@rule("O006", "adam-eps", explains=("non-finite", "lr-too-low", "unigram-plateau"))
def adam_eps(
    find: Find,
    setup: OptimizerSetup,
    parameters: tuple[Parameter, ...] | None = None,
    *,
    near: float = 10.0,
    over: float = 1.0,
    idle: float = 1e-4,
) -> Iterator[Finding]:
    """Adam's eps is as large as the gradients, or rounds to zero.

    What it does:
        Compares eps with the rms of the gradient of each trained matrix, and rounds it to the dtype that the weights
        and Adam's moments have.
    Why it matters:
        Adam moves by lr m / (sqrt(v) + eps). Where eps exceeds the gradient the step shrinks with the gradient, and
        most where the gradient is smallest: in deep and wide models the first layers and the embeddings stop. Where
        eps rounds to zero, an entry whose gradient is zero divides 0 by 0.
    Threshold:
        The median matrix with a gradient rms below `over` times eps: warning; below `near` times eps: info. Matrices
        with a gradient below `idle` of the median (keys' biases, zero-initialized factors) are left out. An eps that
        is zero in the weights' dtype (float16: below 3e-8): error.
    How to fix:
        eps = 1e-8 for float32 weights and gradients of rms above 1e-6; 1e-15 for large models. Keep the weights in
        float32 and compute in half precision (autocast), or give float16 weights an eps of at least 1e-7.
    Example:
        AdamW(eps=1e-2) on a 4-layer model whose gradients have rms 1e-3: the steps are a tenth of what the learning
        rate says. `model.half()` with the default eps of 1e-8: NaN at the first step.
    Source:
        Wortsman+ 2023 (arXiv 2309.14322), section 3.4: gradients of rms at or below eps; the factor 10 is a proposal
        calibrated on this project's healthy runs (docs/calibration.md).
    """
    if not adam(setup) or setup.eps is None:
        return
    eps = setup.eps
    held = {path for group in setup.groups for path in group.paths}
    trained = [p for p in parameters or () if p.trainable and p.path in held]
    half = [p for p in trained if p.dtype == "float16"]
    if half and float(np.float16(eps)) == 0:
        yield find(
            "error",
            "optimizer",
            f"eps {eps:.3g} is zero in float16, the dtype of {len(half)} trained parameters and of Adam's moments",
            evidence={"eps": Quantity(eps, "1"), "smallest_float16": Quantity(2.0**-24, "1")},
            cause="an entry whose gradient is zero, or squares to zero, divides 0 by 0 in the update",
            fix="keep the weights in float32 and compute under autocast with a GradScaler; or pass eps=1e-4 to "
            f"{setup.name}",
        )
        return
    drawn = [p for p in trained if len(p.shape) > 1 and p.grad_rms]
    if not drawn:
        raise CannotJudge("needs the gradient of a trained matrix")
    middle = weighted_median([p.grad_rms or 0.0 for p in drawn], [size(p) for p in drawn])
    judged = [p for p in drawn if (p.grad_rms or 0.0) >= idle * middle]
    middle = weighted_median([p.grad_rms or 0.0 for p in judged], [size(p) for p in judged])
    if middle >= near * eps:
        return
    below = [p for p in judged if (p.grad_rms or 0.0) < eps]
    yield find(
        "warning" if middle < over * eps else "info",
        "optimizer",
        f"eps is {eps:.3g}, and the gradient of the median weight has rms {middle:.3g}: {len(below)} of {len(judged)} "
        "matrices have less than eps",
        evidence={
            "eps": Quantity(eps, "loss"),
            "grad_rms": Quantity(middle, "loss"),
            "matrices_below": Quantity(len(below), "matrices"),
        },
        cause="eps and not the gradient's own size divides the step, so the layers with small gradients stop learning",
        fix=f"pass eps={min(1e-8, middle * 1e-3):.0e} to {setup.name}",
    )


@rule("O007", "stale-beta2", explains=("loss-spike", "non-finite"))
def stale_beta2(
    find: Find,
    setup: OptimizerSetup,
    grad_norm: Readings,
    loss: Readings,
    handling: Handling | None = None,
    *,
    rms: float = 2.3,
    before: float = 8,
    times: float = 2,
    slow: float = 0.98,
) -> Iterator[Finding]:
    """Adam's second moments are older than the gradients: updates burst, and the loss spikes after them.

    What it does:
        Follows g^2 / v from the gradient norms, v their average with beta2 and bias correction as Adam keeps it (after
        clipping, where the clip is known), and looks whether spikes of the loss come right after its bursts.
    Why it matters:
        When gradients grow faster than v forgets, in 1 / (1 - beta2) steps, the step is larger than the learning
        rate says by sqrt(g^2 / v). Seen for embeddings of large models as spikes of the loss.
    Threshold:
        sqrt(g^2 / v) over `rms`, followed by a spike of the loss within `before` steps, at least `times` times in the
        run and with beta2 of at least `slow`: warning. Bursts alone, or a single spike: no finding.
    How to fix:
        beta2 = 0.95; clip the gradient norm at 1; or cap the update by its rms (StableAdamW, Adafactor's clipping).
    Example:
        Adam with beta2 0.999 on data whose gradients jump tenfold every 200 steps: each jump gives steps 4 times too
        long and a spike.
    Source:
        Wortsman+ 2023b (arXiv 2304.13013): RMS over 2.3 precedes spikes by 1 to 8 steps; Molybog+ 2023 (2304.09871).
    """
    if not adam(setup) or setup.beta2 is None or setup.beta2 < slow:
        return
    norms = curve_of(grad_norm)
    if len(norms) < 4 * before or not len(loss):
        raise CannotJudge(f"{len(norms)} gradient norms are too few")
    if handling is not None and handling.clip:
        norms = np.minimum(norms, handling.clip)
    ages = burst_ratios(norms, setup.beta2)
    bursts = grad_norm.steps[np.flatnonzero(ages > rms)]
    caused = [s for s in spikes(loss) if any(0 < s.step - b <= before for b in bursts)]
    if len(caused) < times:
        return
    yield find(
        "warning",
        "optimizer",
        f"{len(caused)} spikes of the loss follow a gradient {rms:g} times larger than beta2 {setup.beta2:g} remembers"
        f", the first at step {caused[0].step}",
        evidence={
            "beta2": Quantity(setup.beta2, "1"),
            "largest_ratio": Quantity(float(np.nanmax(ages)), "1"),
            "spikes": Quantity(len(caused), "spikes"),
        },
        cause=f"the second moment averages {1 / (1 - setup.beta2):.0f} steps: a gradient that grows faster is divided "
        "by what it was",
        fix=f"pass betas=({setup.beta1 or 0.9:g}, 0.95) to {setup.name}, and clip the gradient norm at 1",
    )


def burst_ratios(norms: np.ndarray, beta2: float) -> np.ndarray:
    """sqrt(g_t^2 / v_t), v_t = (beta2 v_{t-1} + (1 - beta2) g_t^2), bias-corrected: Adam's on the global norm."""
    kept, mass, out = 0.0, 0.0, []
    for norm in norms:
        square = float(norm) ** 2 if np.isfinite(norm) else 0.0
        kept, mass = beta2 * kept + (1 - beta2) * square, beta2 * mass + (1 - beta2)
        out.append((square / (kept / mass)) ** 0.5 if kept > 0 else 0.0)
    return np.asarray(out)
