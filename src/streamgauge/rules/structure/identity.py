"""Rules on branches that add nothing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamgauge.rules.evidence import CannotJudge
from streamgauge.rules.harm import Harm
from streamgauge.rules.places import site, span
from streamgauge.rules.rule import Find, rule
from streamgauge.vocabulary import Finding, Quantity, Readings, Severity, Wiring


@rule("W016", "identity-layer")
def identity_layer(
    find: Find,
    harm: Harm,
    wiring: Wiring | None = None,
    branch_ratio: Readings | None = None,
    pretrained: bool | None = None,
    *,
    nothing: float = 1e-6,
    steps: int = 3,
) -> Iterator[Finding]:
    """A branch contributes nothing to the stream, also after training steps.

    What it does:
        Reads the branch ratio, rms(branch) / rms(stream), at the last reading after at least `steps` steps, and the
        constants on the branches. At init it is silent: branches that start at zero (ReZero, Fixup, adaLN-Zero, a zero
        output projection) are healthy.
    Why it matters:
        The parameters of such a layer are paid for and do nothing: the branch is multiplied by zero, or does not learn.
    Threshold:
        A constant branch scale of 0: error. A ratio at or below `nothing` after `steps` steps (ratios of branches that
        start at zero pass 1e-3 after one step of Adam at 1e-3): warning, error where it was not zero at first or where
        the loss shows harm. Learned vectors on the branch (LayerScale) start at 1e-6 and are left out, and so are
        loaded weights.
    How to fix:
        Look at what multiplies the branch: a gate that is zero and frozen, two zero factors in a row, a detached
        output, a mask that removes all. If the layer is not wanted, take it out.
    Example:
        `x = x + self.gate * self.attn(self.ln(x))` with `gate = torch.zeros(1)`, a buffer.
    Source:
        Structure; Bachlechner+ 2020 (arXiv 2003.04887) for branches that start at zero and leave it. The cut is the
        rounding of float32 in a sum.
    """
    joins = list(wiring.joins) if wiring is not None else []
    off = [j for j in joins if isinstance(j.branch_scale, int | float) and j.branch_scale == 0]
    if off:
        yield find(
            "error",
            site(off),
            f"{len(off)} branches are multiplied by the constant 0",
            evidence={"branch_scale": Quantity(0.0, "1"), "joins": Quantity(len(off), "joins")},
            cause="the factor on the branch is a constant, and no gradient changes it",
            fix=f"make the factor in `{off[0].path}` an nn.Parameter, or take the layer out",
        )
        return
    if branch_ratio is None:
        if wiring is None:
            raise CannotJudge("needs the wiring, or branch ratios after some steps of training")
        return
    if len(branch_ratio) < 2 or branch_ratio.steps[-1] - branch_ratio.steps[0] < steps or pretrained:
        return
    scaled = {j.index for j in joins if j.per_channel}
    last, first = branch_ratio.last, branch_ratio.first
    dead = [i for i, p in enumerate(branch_ratio.places) if p.index not in scaled and last[i] <= nothing]
    if not dead:
        return
    indices = [branch_ratio.places[i].index for i in dead]
    inside = [j for j in joins if j.index in indices]
    fell = any(first[i] > 1e3 * nothing for i in dead)
    severity: Severity = "error" if fell or harm.measured else "warning"
    step = int(branch_ratio.steps[-1])
    yield find(
        severity,
        site(inside) if inside else span(indices),
        f"{len(dead)} branches add at most {nothing:g} of the stream after {step} steps",
        evidence={
            "branch_ratio": Quantity(float(np.max(last[dead])), "1"),
            "branch_ratio_first": Quantity(float(np.max(first[dead])), "1"),
            "step": Quantity(step, "step"),
            "branches": Quantity(len(dead), "branches"),
            **harm.evidence,
        },
        cause="what multiplies the branch is zero and stays so: its parameters get no gradient or take no step",
        fix=f"look for a zero gate, two zero factors in a row or a detached output in "
        f"`{branch_ratio.places[dead[0]].path}`; start one of two factors at a value other than zero",
    )
