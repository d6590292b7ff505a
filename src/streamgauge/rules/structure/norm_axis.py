"""Rules on what the statistics of a norm are taken over."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from streamgauge.rules.evidence import CannotJudge
from streamgauge.rules.harm import Harm
from streamgauge.rules.rule import Find, rule
from streamgauge.vocabulary import Finding, Norm, Parameter, Probe, Quantity, Severity, Wiring

STREAM = ("join", "final", "embedding", "other")


@rule("W009", "norm-axis", explains=("target-leak", "token-collapse"))
def norm_axis(
    find: Find,
    wiring: Wiring,
    harm: Harm,
    parameters: tuple[Parameter, ...] | None = None,
    probes: tuple[Probe, ...] | None = None,
    causal_lm: bool | None = None,
    *,
    leak: float = 1e-4,
) -> Iterator[Finding]:
    """The statistics of a norm mix tokens.

    What it does:
        Compares the number of elements that each statistic is taken over with the width of the stream, read off the
        norm's own gain, else off the widths of the model's matrices: more than one token's features, or tokens in
        place of features. BatchNorm is judged by the causality probe alone.
    Why it matters:
        A norm over tokens and features makes each token's output depend on every other one, later ones and padding
        included. A causal model sees the future through it in training and not in generation; a sequence of another
        length, or a batch padded otherwise, gives other outputs. The loss shows nothing of this.
    Threshold:
        Statistics over more elements than the width (LayerNorm, RMSNorm, ScaleNorm): warning. Error where the outputs
        at earlier positions move with later tokens by more than `leak` of their rms and three times the noise.
        A gain with an entry for each token and feature (`nn.LayerNorm((tokens, width))`) in a model that is not known
        to be causal is a choice: info.
    How to fix:
        Take the statistics over the last axis alone: `F.layer_norm(x, (width,))`, `x.mean(-1, keepdim=True)`.
    Example:
        `F.layer_norm(x, x.shape[1:])` on x of [batch, 16, 64]: each statistic is taken over 1024 numbers, where one
        token has 64.
    Source:
        Ba+ 2016 (arXiv 1607.06450), equation 3: statistics over the units of one layer, for each case. Cf. GATr PR 8,
        speechbrain issue 1569. The leak threshold is far above float32 rounding.
    """
    if not wiring.norms:
        raise CannotJudge("the wiring lists no norm")
    seen = next((p for p in probes or () if p.name == "future"), None)
    leaks = seen is not None and seen.change > max(leak, 3 * seen.noise)
    shapes = {p.path: p.shape for p in parameters or ()}
    width = _width(wiring, parameters or ())
    wide: list[tuple[Norm, int]] = []
    chosen = True
    for norm in wiring.norms:
        if norm.kind in ("layernorm", "rmsnorm", "scalenorm") and norm.role in STREAM and norm.size:
            gain = _gain(norm, shapes)
            features = gain[-1] if gain and math.prod(gain) > 1 else width
            mixes = features is not None and norm.size > features and norm.size % features == 0
            if mixes or (features is not None and gain and math.prod(gain) > 1 and norm.size < features and leaks):
                wide.append((norm, features or 0))
                chosen &= len(gain) > 1
        elif norm.kind == "batchnorm" and leaks:
            wide.append((norm, 1))
            chosen = False
    if not wide:
        return
    first, features = wide[0]
    severity: Severity = "info" if chosen and not leaks and not causal_lm else "warning"
    evidence = {
        "norms": Quantity(len(wide), "norms"),
        "size": Quantity(first.size, "elements"),
        "features": Quantity(features, "elements"),
    }
    message = f"{len(wide)} norms take each statistic over {first.size} elements, where one token has {features}"
    if first.kind == "batchnorm":
        message = f"{len(wide)} batch norms take their statistics over tokens"
    if seen is not None and leaks:
        severity = "error"
        evidence |= {"leak": Quantity(seen.change, "1"), "noise": Quantity(seen.noise, "1")}
        message += f"; outputs move by {seen.change:.2g} of their rms with tokens after them"
    yield find(
        harm.severity(severity) if harm.measured else severity,
        _paths([norm for norm, _ in wide]),
        message,
        evidence=evidence,
        cause=f"the norm {first.path or 'in the model'} averages over tokens as well as over features",
        fix=f"in `{first.path}` take mean and variance over the last axis alone: "
        "`F.layer_norm(x, x.shape[-1:], weight, bias, eps)`, `nn.LayerNorm(width)`, `x.mean(-1, keepdim=True)`",
    )


@rule("W010", "narrow-norm", explains=("norm-nullspace", "dead-parameters", "unigram-plateau"))
def narrow_norm(find: Find, wiring: Wiring, harm: Harm, *, narrow: int = 2) -> Iterator[Finding]:
    """A norm over one or two features.

    What it does:
        Finds norms (BatchNorm left out) whose statistics are taken over at most `narrow` elements.
    Why it matters:
        LayerNorm of one number is 0, whatever the number; of two it is +1 and -1 in one order or the other: all but
        the sign of the difference is lost. RMSNorm of one number keeps its sign alone.
    Threshold:
        One element: error, the information is gone with certainty. Two, up to `narrow`: warning for LayerNorm and
        GroupNorm, info for norms without a mean; error where the loss shows harm, info where the run trains.
    How to fix:
        Project to the model's width first, `norm(proj(x))`, or take the norm over the feature axis.
    Example:
        `nn.LayerNorm(1)` on a time series of one channel gives zeros; `nn.LayerNorm(2)` on coordinates gives +-1.
    Source:
        Closed form: (x - mean) / std of two numbers a, b is sign(a - b) (1, -1); Ba+ 2016 (arXiv 1607.06450).
    """
    if not wiring.norms:
        raise CannotJudge("the wiring lists no norm")
    found = [n for n in wiring.norms if n.kind != "batchnorm" and n.size is not None and n.size <= narrow]
    if not found:
        return
    size = min(n.size or 0 for n in found)
    centred = any(n.kind in ("layernorm", "groupnorm") for n in found)
    kept = "nothing" if centred and size == 1 else "a sign"
    severity: Severity = "error" if size == 1 else harm.severity("warning" if centred else "info")
    yield find(
        severity,
        _paths(found),
        f"{len(found)} norms take their statistics over {size} element{'s' if size > 1 else ''}: {kept} of the input "
        "passes",
        evidence={"size": Quantity(size, "elements"), "norms": Quantity(len(found), "norms"), **harm.evidence},
        cause="the norm divides the few features by their own spread: their size, and what it told, is gone",
        fix=f"project to the model's width before `{found[0].path or 'the norm'}`, or leave that norm out",
    )


def _gain(norm: Norm, shapes: dict[str, tuple[int, ...]]) -> tuple[int, ...]:
    """The shape of the norm's gain: of the largest parameter that its module holds itself."""
    prefix = norm.path + "." if norm.path else ""
    own = [shape for path, shape in shapes.items() if path.startswith(prefix) and "." not in path[len(prefix) :]]
    own = [shape for shape in own if len(shape) <= 2] if norm.path else []
    return max(own, key=math.prod, default=())


def _width(wiring: Wiring, parameters: Sequence[Parameter]) -> int | None:
    """The commonest last dimension of the model's vectors and matrices, weighed by nothing but their number."""
    norms = {norm.path for norm in wiring.norms}
    sizes = Counter(p.shape[-1] for p in parameters if len(p.shape) == 2 and p.path.rpartition(".")[0] not in norms)
    return sizes.most_common(1)[0][0] if sizes else None


def _paths(norms: Sequence[Norm]) -> str:
    first, last = norms[0].path or "the model", norms[-1].path or "the model"
    return first if first == last else f"{first} to {last}"
