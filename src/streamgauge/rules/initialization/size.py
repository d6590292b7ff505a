"""Rules on the size of embeddings and matrices at initialization."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from streamgauge.rules.evidence import CannotJudge
from streamgauge.rules.harm import Harm
from streamgauge.rules.outcome import curve_of
from streamgauge.rules.rule import Find, rule
from streamgauge.vocabulary import Finding, Parameter, Probe, Quantity, Readings, Severity, Wiring


@rule("I005", "embedding-scale", explains=("initial-loss", "norm-nullspace", "exploding-gradient"))
def embedding_scale(
    find: Find,
    parameters: tuple[Parameter, ...],
    harm: Harm,
    wiring: Wiring | None = None,
    loss: Readings | None = None,
    vocab: int | None = None,
    pretrained: bool | None = None,
    probes: tuple[Probe, ...] | None = None,
    *,
    spread: float = 4.0,
    excess: float = 1.5,
    drowned: float = 0.05,
) -> Iterator[Finding]:
    """The embedding is too large for the head that shares it, or too small for the norm that reads it.

    What it does:
        For an embedding that is tied to the output head: s = rms(E) sqrt(width), the standard deviation of the logits
        that a normed stream gives. For every embedding that a norm with eps reads: rms(E)^2 against eps.
    Why it matters:
        torch's nn.Embedding starts at std 1, which is right for an input and far too large for a head: logits of
        std s start with a loss of about s^2 / 2 over ln(vocab), more where the token's own embedding is still in the
        stream. An embedding far below sqrt(eps) is not brought to size by the norm that follows.
    Threshold:
        Tied: s over `spread`, and the initial loss over ln(vocab) + `excess` nats or not known: warning; error where
        the loss shows harm. Tiny, rms(E)^2 below the eps of the norm that reads it, for the embedding with the most
        rows: info by itself (RWKV starts at 1e-4 before a norm and trains), warning where exchanging all tokens moves
        the outputs by less than `drowned` of their rms (healthy: about 1). Loaded weights are not judged.
    How to fix:
        `nn.init.normal_(embedding.weight, std=width ** -0.5)` (0.02 in GPT-2), and multiply by sqrt(width) on the way
        in where the stream should have unit size.
    Example:
        `head.weight = tok.weight` with `nn.Embedding(85, 128)` as torch makes it: the initial loss is 79 nats, and
        ln 85 = 4.4.
    Source:
        Press & Wolf 2017 (arXiv 1608.05859): tying; Vaswani+ 2017, section 3.4: embeddings times sqrt(width); GPT-2.
        s^2 / 2: mean of log-sum-exp of normal logits.
    """
    if pretrained:
        return
    tables = [p for p in parameters if p.owner.endswith("Embedding") and len(p.shape) == 2 and p.rms is not None]
    if not tables:
        raise CannotJudge("no embedding among the parameters has values")
    first = float(curve_of(loss)[0]) if loss is not None else math.nan
    known = not math.isnan(first) and vocab is not None
    beyond = first - math.log(vocab) if known and vocab is not None else math.nan
    for table in tables:
        width = table.shape[1]
        logits = (table.rms or 0.0) * math.sqrt(width)
        if not table.shared_with or logits <= spread or (known and beyond <= excess):
            continue
        evidence = {"rms": Quantity(table.rms, "1"), "logit_std": Quantity(logits, "1")}
        message = f"{table.path} has rms {table.rms:.3g} and is the head's weight too ({table.shared_with[0]}): logits "
        message += f"start with a spread of about {logits:.1f}"
        if known:
            evidence |= {"initial_loss": Quantity(first, "nat"), "uniform_loss": Quantity(first - beyond, "nat")}
            message += f"; the initial loss is {first:.1f} nats, against {first - beyond:.2f} for a uniform guess"
        yield find(
            "error" if harm.measured else "warning",
            table.path,
            message,
            evidence=evidence | harm.evidence,
            cause="one tensor serves as input, where std 1 is right, and as head, where std 1/sqrt(width) is",
            fix=f"`nn.init.normal_({table.path}, std={width**-0.5:.3g})`, and multiply the embedded tokens by "
            f"{width**0.5:.3g} where the stream should start at unit size",
        )
        return
    yield from _tiny(find, tables, wiring, harm, next((p for p in probes or () if p.name == "input"), None), drowned)


def _tiny(
    find: Find, tables: Sequence[Parameter], wiring: Wiring | None, harm: Harm, moved: Probe | None, drowned: float
) -> Iterator[Finding]:
    eps = [n.eps for n in wiring.norms if n.eps and n.role in ("join", "embedding")] if wiring is not None else []
    table = max(tables, key=lambda p: p.shape[0])
    if not eps or table.rms is None or table.rms**2 >= min(eps):
        return
    evidence = {"rms": Quantity(table.rms, "1"), "eps": Quantity(min(eps), "1")}
    message = (
        f"{table.path} has rms {table.rms:.2g}: its square is below the eps = {min(eps):g} of the norm that reads it"
    )
    if moved is not None:
        evidence |= {"change": Quantity(moved.change, "1"), "noise": Quantity(moved.noise, "1")}
        message += f"; with all tokens exchanged the outputs move by {moved.change:.2g} of their rms"
    yield find(
        harm.severity("warning" if moved is not None and moved.change < drowned else "info"),
        table.path,
        message,
        evidence=evidence | harm.evidence,
        cause="in x / sqrt(var + eps) eps is the larger term, so that the normed embedding stays small",
        fix=f"`nn.init.normal_({table.path}, std=0.02)`, or a smaller eps",
    )


@rule("I006", "large-init", explains=("stream-explodes", "initial-loss", "exploding-gradient", "token-collapse"))
def large_init(
    find: Find,
    parameters: tuple[Parameter, ...],
    harm: Harm,
    loss: Readings | None = None,
    vocab: int | None = None,
    pretrained: bool | None = None,
    *,
    gain: float = 2.0,
    certain: float = 3.5,
    excess: float = 1.5,
) -> Iterator[Finding]:
    """The matrices start far larger than their fan-in allows.

    What it does:
        For every matrix of a linear map: gain = rms(W) sqrt(fan_in), by which it changes the rms of what it reads. The
        median over the model is judged.
    Why it matters:
        A branch of two matrices multiplies by gain^2, attention scores by gain^2 as well: with norms the softmax starts
        one-hot and the branches drown the stream; without, the stream explodes.
    Threshold:
        Median gain over `certain`: warning. Over `gain` it is one where the initial loss is over ln(vocab) + `excess`
        nats, else info. Error where the loss shows harm, info where the run trains. Usual: Xavier 0.6 to 1, He 1.41,
        torch's Linear 0.58, N(0, 0.02) 0.55 at width 768. Loaded weights are not judged.
    How to fix:
        Initialize with std 1/sqrt(fan_in) (Xavier, `nn.init.xavier_uniform_`), or 0.02 from width 512 on.
    Example:
        `nn.init.normal_(weight)` (std 1) in every Linear of width 64: gain 8.
    Source:
        Glorot & Bengio 2010; He+ 2015 (arXiv 1502.01852). 12 layers of width 64 with std 0.3 (gain 2.4) end at 4.01
        nats after 100 steps where the healthy twin is at 2.90.
    """
    if pretrained:
        return
    gains = {p.path: _gain(p) for p in parameters if len(p.shape) == 2 and p.rms and "Embedding" not in p.owner}
    if len(gains) < 2:
        raise CannotJudge("fewer than two matrices among the parameters have values")
    median = float(np.median(list(gains.values())))
    if median <= gain:
        return
    evidence = {"median_gain": Quantity(median, "1"), "matrices": Quantity(len(gains), "matrices")}
    message = f"the median matrix multiplies what it reads by {median:.2g} (Xavier: 0.6 to 1)"
    starts_high = False
    if loss is not None and vocab is not None:
        first, uniform = float(curve_of(loss)[0]), math.log(vocab)
        starts_high = not first <= uniform + excess
        evidence |= {"initial_loss": Quantity(first, "nat"), "uniform_loss": Quantity(uniform, "nat")}
        message += f"; the initial loss is {first:.2f} nats, against {uniform:.2f} for a uniform guess"
    severity: Severity = harm.severity("warning" if median > certain or starts_high else "info")
    worst = max(gains, key=lambda path: gains[path])
    yield find(
        severity,
        worst,
        message,
        evidence=evidence | harm.evidence,
        cause="the standard deviation of the init does not follow the fan-in",
        fix="initialize every matrix with std 1/sqrt(fan_in) (`nn.init.xavier_uniform_`); largest now: "
        f"`{worst}`, gain {gains[worst]:.2g}",
    )


def _gain(parameter: Parameter) -> float:
    """rms(W) sqrt(fan_in); transformers' Conv1D holds its matrix the other way round."""
    fan_in = parameter.shape[0] if parameter.owner == "Conv1D" else parameter.shape[1]
    return float((parameter.rms or 0.0) * math.sqrt(fan_in))
