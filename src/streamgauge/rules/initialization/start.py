"""Rules on the first loss, and on inputs that the first norm deletes."""

from __future__ import annotations

import math
from collections.abc import Iterator

from streamgauge.rules.evidence import CannotJudge
from streamgauge.rules.harm import Harm
from streamgauge.rules.outcome import curve_of
from streamgauge.rules.places import regime
from streamgauge.rules.rule import Find, rule
from streamgauge.vocabulary import Finding, Parameter, Probe, Quantity, Readings, Wiring


@rule("I008", "initial-loss")
def initial_loss(
    find: Find,
    loss: Readings,
    vocab: int,
    harm: Harm,
    parameters: tuple[Parameter, ...] | None = None,
    pretrained: bool | None = None,
    *,
    excess: float = 1.5,
    multiple: float = 3.0,
) -> Iterator[Finding]:
    """The first loss is far above that of a uniform guess.

    What it does:
        Compares the loss before the first step with ln(vocab), the loss of equal probabilities.
    Why it matters:
        A loss above it means that the model starts out sure of wrong answers: logits are large. The first steps are
        spent on taking them back, with gradients that saturate and moments of Adam that remember them.
    Threshold:
        More than `excess` nats over ln(vocab): warning; error where the loss shows harm, info where the run trains.
        Healthy starts: at most 0.4 over, 1.0 with a He or Xavier head on a wide stream and few classes. A loss of more
        than `multiple` times ln(vocab) while no head is large is a sum or a weighted objective, not a mean of cross
        entropies: not assessed. Loaded weights are not judged.
    How to fix:
        Norm the stream before the head, and initialize the head with std 1/sqrt(width), 0.02, or zero.
    Example:
        A head tied to an embedding of std 1, width 128: 79 nats, and ln 85 = 4.4.
    Source:
        ln(vocab) is the cross entropy of the uniform distribution. TheDeepChecker warns at 100 % over; the margin
        here was measured on healthy nets of this project.
    """
    if pretrained:
        return
    first, uniform = float(curve_of(loss)[0]), math.log(vocab)
    if math.isnan(first) or math.isinf(first):
        raise CannotJudge(f"the first loss is {first}")
    if first <= uniform + excess:
        return
    spread = max((_spread(p, vocab) for p in parameters or ()), default=math.nan)
    if first > multiple * uniform and spread <= 2:
        raise CannotJudge(
            f"the first loss is {first:.3g}, {first / uniform:.1f} times ln(vocab), while the head is of usual size: "
            "it is no mean of cross entropies"
        )
    evidence = {"initial_loss": Quantity(first, "nat"), "uniform_loss": Quantity(uniform, "nat")}
    if not math.isnan(spread):
        evidence["head_gain"] = Quantity(spread, "1")
    yield find(
        harm.severity("warning"),
        "the output head",
        f"the first loss is {first:.2f} nats, {first - uniform:.2f} above ln({vocab}) = {uniform:.2f}",
        evidence=evidence | harm.evidence,
        cause="the logits start large: the head's weights or the features that it reads are too big",
        fix="norm the stream before the head, and initialize the head, and an embedding that it shares, with std "
        "1/sqrt(width) or 0.02",
    )


def _spread(parameter: Parameter, vocab: int) -> float:
    """rms(W) sqrt(width) of a matrix with a row for each class, 0 for others."""
    if len(parameter.shape) != 2 or parameter.shape[0] < vocab or parameter.rms is None:
        return 0.0
    head = parameter.owner != "Embedding" or parameter.shared_with
    return float(parameter.rms * math.sqrt(parameter.shape[1])) if head else 0.0


@rule("I009", "norm-nullspace", explains=("dead-parameters", "token-collapse", "unigram-plateau"))
def norm_nullspace(
    find: Find,
    probes: tuple[Probe, ...],
    harm: Harm,
    wiring: Wiring | None = None,
    *,
    nothing: float = 1e-5,
) -> Iterator[Finding]:
    """The output does not depend on the input: a norm deletes what the input holds.

    What it does:
        Exchanges every token of the input for another one and compares the outputs.
    Why it matters:
        A LayerNorm takes away the mean over the features and divides by their spread. An input that is one number at
        all features (`x.expand(..., width)`), or a constant vector, comes out as zero or as always the same: nothing of
        it reaches the head.
    Threshold:
        A mean change of the outputs of at most `nothing` of their rms with all tokens changed: error, the harm is
        measured. Not assessed where the outputs move by more than that, and half as much as then, without any change.
        Stacks without residuals lose their input otherwise: see missing-residual.
    How to fix:
        Give each input number its own direction, `nn.Linear(1, width)` with a bias, or leave the first norm out: the
        placement after the addition (norm_first=False) keeps it in the skip no better.
    Example:
        A series of scalars as `x.unsqueeze(-1).expand(-1, -1, 64)` into Pre-LN blocks: the loss stays at that of the
        mean.
    Source:
        LayerNorm(c + x) = LayerNorm(x) for every constant c (Ba+ 2016, arXiv 1607.06450, table 1).
    """
    seen = next((p for p in probes if p.name == "input"), None)
    if seen is None:
        raise CannotJudge("needs the probe that changes every token of the input")
    if math.isnan(seen.change) or (seen.change > nothing and seen.change > 2 * seen.noise):
        return
    if seen.noise > nothing:
        raise CannotJudge(f"without any change the outputs move by {seen.noise:.2g} of their rms already")
    if wiring is not None and regime(wiring) == "no residual":
        return
    norms = [n for n in wiring.norms if n.kind in ("layernorm", "groupnorm")] if wiring is not None else []
    place = norms[0].path if norms and norms[0].path else "the first norm"
    yield find(
        "error",
        place,
        f"with every token of the input exchanged the outputs move by {seen.change:.1g} of their rms",
        evidence={"change": Quantity(seen.change, "1"), "noise": Quantity(seen.noise, "1"), **harm.evidence},
        cause="what the input holds is constant over the features that the norm is taken over, and the norm removes it",
        fix=f"before `{place}` give each input number its own direction: `nn.Linear(inputs, width)`; and see that the "
        "model uses its input at all",
    )
