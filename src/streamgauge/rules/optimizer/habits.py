"""Rules on settings that cost little by themselves: what decays, and what is clipped."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamgauge.rules.evidence import CannotJudge
from streamgauge.rules.optimizer.motion import adaptive
from streamgauge.rules.outcome import curve_of
from streamgauge.rules.rule import Find, rule
from streamgauge.vocabulary import Finding, Handling, OptimizerSetup, Parameter, Quantity, Readings


@rule("O005", "decay-on-gains")
def decay_on_gains(
    find: Find, setup: OptimizerSetup, parameters: tuple[Parameter, ...], *, least: float = 1e-8
) -> Iterator[Finding]:
    """Weight decay pulls the gains of norms, and scalars, toward zero.

    What it does:
        Looks for trained vectors and scalars (gains, biases, residual scales) in a group of the optimizer whose weight
        decay is not zero.
    Why it matters:
        Decay keeps matrices small, whose size a following norm divides out. A gain has no norm after it: decay makes
        every branch smaller, and pulls learned residual scales to zero, which switches their layers off.
    Threshold:
        Weight decay above `least` on a parameter of at most one axis. Always info: most runs do it and train.
    How to fix:
        Two groups: `{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}`;
        `sg.nn.recipe(model)` makes them, and `sg.fix.apply(model, "decay-on-gains", optimizer)` splits those that
        exist.
    Example:
        `AdamW(model.parameters())` decays all gains by its default of 0.01.
    Source:
        A habit of GPT-2, BERT and their descendants (minGPT, nanoGPT: no decay on LayerNorm and biases).
    """
    one_axis = {p.path: p for p in parameters if p.trainable and len(p.shape) <= 1}
    found = [(path, g.weight_decay) for g in setup.groups if g.weight_decay > least for path in g.paths]
    decayed = [(path, decay) for path, decay in found if path in one_axis]
    if not decayed:
        return
    gains = [path for path, _ in decayed if "norm" in one_axis[path].owner.lower()]
    first = gains[0] if gains else decayed[0][0]
    yield find(
        "info",
        "optimizer",
        f"{len(decayed)} vectors and scalars decay, {len(gains)} of them of norms ({first} first)",
        evidence={
            "weight_decay": Quantity(max(decay for _, decay in decayed), "1"),
            "vectors": Quantity(len(decayed), "parameters"),
            "of_norms": Quantity(len(gains), "parameters"),
        },
        cause="the optimizer was given all parameters in one group",
        fix='give it two groups: matrices with the decay, vectors and scalars with `"weight_decay": 0.0`',
    )


@rule("O008", "always-clipping")
def always_clipping(
    find: Find,
    grad_norm: Readings,
    handling: Handling,
    setup: OptimizerSetup | None = None,
    *,
    share: float = 0.95,
    ratio: float = 10.0,
    few: float = 20,
) -> Iterator[Finding]:
    """Every step is clipped: the clip, and not the learning rate, sets the size of the steps.

    What it does:
        Counts the steps whose gradient norm exceeds the clip, and the median ratio of the two.
    Why it matters:
        Clipping is meant for the odd step. Where it acts always, SGD runs at learning rate times clip over norm, a
        rate that nobody chose and that changes with the gradient. Adam divides a constant factor out, so for it
        the matter is small: the bursts that clipping should cut are passed on.
    Threshold:
        At least `share` of the steps clipped, of `few` steps or more. Info; warning for an optimizer whose step follows
        the gradient (SGD) where the median norm is `ratio` times the clip.
    How to fix:
        Clip at two to three times the median gradient norm, and lower the learning rate of SGD in proportion.
    Example:
        SGD at 0.1 with a clip of 0.01 while gradients have norm 2: the run is made at a rate of 0.0005.
    Source:
        Zhang J.+ 2020 (arXiv 1905.11881) on clipping as a learning rate; ZClip (2504.02507): clip what stands out.
    """
    if not handling.clip:
        return
    norms = curve_of(grad_norm)
    norms = norms[np.isfinite(norms)]
    if len(norms) < few:
        raise CannotJudge(f"{len(norms)} gradient norms are too few (at least {few:g})")
    clipped = float((norms > handling.clip).mean())
    if clipped < share:
        return
    middle = float(np.median(norms))
    follows = setup is not None and not adaptive(setup)
    yield find(
        "warning" if follows and middle >= ratio * handling.clip else "info",
        "run",
        f"{clipped:.0%} of the steps are clipped: the median gradient norm is {middle:.3g}, the clip {handling.clip:g}",
        evidence={
            "clipped": Quantity(clipped, "1"),
            "grad_norm": Quantity(middle, "loss"),
            "clip": Quantity(handling.clip, "loss"),
        },
        cause="the clip lies below the gradients that this model always has",
        fix=f"clip at {2.5 * middle:.1g}"
        + (f", and lower the learning rate by {middle / handling.clip:.1g}" if follows else ""),
    )
