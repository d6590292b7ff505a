"""Rules on parameters that no gradient reaches."""

from __future__ import annotations

from collections.abc import Iterator

from streamgauge.rules.evidence import CannotJudge
from streamgauge.rules.harm import Harm
from streamgauge.rules.rule import Find, rule
from streamgauge.vocabulary import Finding, Parameter, Quantity, Severity, Tap, Wiring


@rule("I007", "dead-parameters", explains=("identity-layer", "unigram-plateau"))
def dead_parameters(
    find: Find,
    parameters: tuple[Parameter, ...],
    harm: Harm,
    wiring: Wiring | None = None,
) -> Iterator[Finding]:
    """Matrices that get no gradient, and never will.

    What it does:
        After one backward pass: finds trainable matrices that are zero and whose gradient is zero as well; matrices
        whose gradient is zero in a block where nothing that starts at zero gets one; and matrices without any gradient
        in a module that the graph shows at work.
    Why it matters:
        With y = B A x, the gradient of B is proportional to A x and that of A to B. One zero factor is a start (it gets
        a gradient, moves, and the other follows); with two neither moves, ever. A detached branch is the same.
    Threshold:
        None on size: a zero is a zero. Error, as a gradient that is zero is harm measured; for a matrix that is not
        zero itself, as after a dead ReLU, warning. Silent where all of the model's gradient waits for a head that
        starts at zero (Fixup, adaLN-Zero), and for modules that are not used at all (a layer that a container copied).
    How to fix:
        Start one of the two factors at its usual size; zero the branch's last matrix alone.
    Example:
        `nn.init.zeros_` on both matrices of each feed-forward: none of them has moved after 150 steps.
    Source:
        The product rule. Zhang+ 2019 (arXiv 1901.09321), Peebles & Xie 2023 (2212.09748): one zero factor. Cf. PDAE
        issue 3.
    """
    matrices = [p for p in parameters if p.trainable and len(p.shape) > 1 and p.rms is not None]
    if not any(p.grad_rms is not None for p in matrices):
        raise CannotJudge("no matrix got a gradient in the backward pass")
    still = [p for p in matrices if p.largest_grad == 0.0]
    moving = [p for p in matrices if p.largest_grad]
    both = [p for p in still if p.rms == 0.0]
    waiting = [p for p in parameters if p.trainable and p.rms == 0.0 and p.largest_grad and _multiplies(p)]
    if len(moving) <= 1 and any(p.rms == 0.0 for p in moving):
        return
    blocked = [p for p in still if p.rms != 0.0 and not any(_block(w.path) == _block(p.path) for w in waiting)]
    off = [j for j in wiring.sublayers if j.branch_scale == 0] if wiring is not None else []
    if off:  # a constant zero on the branch: identity-layer says so
        blocked = []
    if waiting and not any(_block(w.path) for w in waiting):  # gates held outside the blocks
        blocked = []
    cut = [p for p in matrices if p.grad_rms is None and _at_work(p, wiring, matrices)]
    severity: Severity = "error"
    if both:
        found, why = both, "zero, with a gradient that is zero as well"
        found = found + [p for p in blocked if any(_block(p.path) == _block(b.path) for b in both)]
        cause = "two factors of one product are zero: each multiplies the other's gradient"
        fix = f"leave `{both[0].path}` at its usual init and zero only the branch's last matrix"
    elif cut:
        found, why = cut, "in use without getting a gradient"
        cause = "the branch is detached from the graph, or runs under no_grad"
        fix = f"remove `.detach()`, `.data` or `no_grad` from the forward that uses `{cut[0].path}`"
    elif blocked:
        found, why = blocked, "without a gradient at any entry"
        severity = "error" if harm.measured else "warning"
        cause = "something behind it passes nothing back: a unit that is off everywhere, a constant factor of zero"
        fix = f"look at what `{blocked[0].path}` feeds: an activation that is off everywhere, a frozen zero"
    else:
        return
    total = sum(_count(p) for p in found)
    yield find(
        severity,
        found[0].path if len(found) == 1 else f"{found[0].path} to {found[-1].path}",
        f"{len(found)} matrices ({total} parameters) are {why}",
        evidence={
            "matrices": Quantity(len(found), "matrices"),
            "parameters": Quantity(total, "parameters"),
            "largest_gradient": Quantity(0.0 if not cut or both else None, "1"),
            **harm.evidence,
        },
        cause=cause,
        fix=fix,
    )


def _count(parameter: Parameter) -> int:
    total = 1
    for n in parameter.shape:
        total *= n
    return total


def _multiplies(parameter: Parameter) -> bool:
    """A matrix or a gate: something whose zero holds back the gradient of others. A bias does not."""
    return not parameter.path.rpartition(".")[2].startswith("bias") and not parameter.path.endswith("_bias")


def _block(path: str) -> str:
    """The path up to its last number: "layers.3" of layers.3.mlp.fc1.weight (of layers.3.mlp.0.weight too)."""
    parts = path.split(".")
    numbers = [i for i, part in enumerate(parts) if part.isdigit()]
    return ".".join(parts[: numbers[0] + 1]) if numbers else ""


def _at_work(parameter: Parameter, wiring: Wiring | None, matrices: list[Parameter]) -> bool:
    """Whether the matrix lies in a branch of the graph, in a block where other matrices have gradients."""
    if wiring is None:
        return False
    taps: list[Tap] = [j.branch_tap for j in wiring.sublayers if j.branch_tap is not None]
    holders = {t.path for t in taps if t.path}
    holds = any(parameter.path.startswith(path + ".") for path in holders)
    return holds and any(p.grad_rms is not None for p in matrices)
