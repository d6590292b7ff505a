"""Rules on the eps of norms, against the dtype and the variance that it stands beside."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import numpy as np

from streamgauge.rules.evidence import CannotJudge
from streamgauge.rules.places import span
from streamgauge.rules.precision.dtypes import FORMATS
from streamgauge.rules.rule import Find, rule
from streamgauge.vocabulary import Finding, Join, Norm, Origin, Parameter, Quantity, Readings, Severity, Wiring


def named(norms: list[Norm]) -> str:
    """ "3 norms (blocks.0.ln1 to ln_f)"."""
    first, last = norms[0].path or "the model's own code", norms[-1].path or "the model's own code"
    paths = first if first == last else f"{first} to {last}"
    return f"{len(norms)} norm{'s' if len(norms) > 1 else ''} ({paths})"


@rule("P001", "eps-underflow", explains=("non-finite", "half-norm-statistics", "half-overflow"))
def eps_underflow(
    find: Find, wiring: Wiring, origin: Origin | None = None, parameters: tuple[Parameter, ...] | None = None
) -> Iterator[Finding]:
    """The eps of a norm rounds to zero in the dtype in which it is added.

    What it does:
        Rounds the eps of each norm that is written out in the graph to the dtype of its statistics. Fused kernels are
        left out: torch's compute half-precision norms in float32. Where the first value that is not finite was made by
        a division by zero in a module that holds a gain and no matrix, that module is taken for a norm.
    Why it matters:
        eps is what keeps a constant row, such as a zero padding embedding, from 0 / 0. One NaN there is a NaN in every
        weight after the next step.
    Threshold:
        eps at most half of the smallest positive number of the dtype, which rounds to zero: error. That is 3e-8 in
        float16; bfloat16 and float32 hold 1e-12. A norm that did divide by zero: error. An eps written as 0: info.
    How to fix:
        Compute the statistics in float32 (`x.float()`, or `torch.nn.functional.layer_norm`, which does so itself); or
        set eps to 1e-5.
    Example:
        `c / (c.pow(2).mean(-1, keepdim=True) + 1e-12).sqrt()` in a model after `.half()`: the padding row is 0 / 0.
    Source:
        IEEE 754: the smallest float16 is 2^-24 = 6e-8. Cf. tensorflow PR 24979, pytorch issue 41527, wenet PR 907.
    """
    written = [n for n in wiring.norms if not n.fused and n.eps is not None and n.dtype in FORMATS]
    lost = [n for n in written if n.eps and FORMATS[n.dtype].flushes(n.eps)]
    bare = [n for n in written if n.eps == 0]
    if lost:
        yield _lost(find, lost, "rounds to zero", "error")
        return
    divided = origin is not None and origin.zero_divisor and origin.flow == "forward"
    broke = [n for n in bare if divided and origin is not None and n.path == origin.path]
    if broke:
        yield _lost(find, broke, "is zero", "error")
    elif divided and origin is not None and _holds_a_gain(origin.path, parameters):
        yield find(
            "error",
            origin.path,
            f"batch {origin.step}: the norm {origin.path} divides by zero in {origin.dtype}: its eps is zero there",
            evidence={"dtype": Quantity(origin.dtype, "dtype"), "operation": Quantity(origin.op, "operation")},
            cause=f"the norm is written out and computed in {origin.dtype}; a constant row, such as a zero padding "
            "embedding, leaves eps alone in the divisor, and eps rounds to zero",
            fix=CURE,
        )
    elif bare:
        yield _lost(find, bare, "is zero", "info")


CURE = "compute the norm in float32, `torch.nn.functional.layer_norm(x.float(), ...).to(x.dtype)`, or set eps to 1e-5"


def _lost(find: Find, norms: list[Norm], why: str, severity: Severity) -> Finding:
    first = norms[0]
    return find(
        severity,
        named(norms),
        f"eps {first.eps:g} of {named(norms)} {why} in {first.dtype}",
        evidence={
            "eps": Quantity(first.eps, "1"),
            "dtype": Quantity(first.dtype, "dtype"),
            "smallest": Quantity(FORMATS[first.dtype].smallest, "1"),
            "norms": Quantity(len(norms), "norms"),
        },
        cause=f"the norm is written out and computed in {first.dtype}, where a constant row then divides 0 by 0",
        fix=CURE,
    )


def _holds_a_gain(path: str, parameters: tuple[Parameter, ...] | None) -> bool:
    """Does the module hold vectors of one length and no matrix?"""
    shapes = {p.shape for p in parameters or () if path and p.path.rpartition(".")[0] == path}
    return len(shapes) == 1 and len(next(iter(shapes))) == 1


@rule("P002", "eps-dominates", explains=("vanishing-gradient", "unigram-plateau", "layer-collapse", "redundant-layer"))
def eps_dominates(
    find: Find,
    wiring: Wiring,
    stream_rms: Readings | None = None,
    pretrained: bool | None = None,
    *,
    share: float = 0.25,
    most: float = 0.5,
    large: float = 0.01,
) -> Iterator[Finding]:
    """The eps of a norm is as large as the variance that it should divide by.

    What it does:
        Compares eps with the mean square of the stream that the norm reads: that which leaves the sublayer before a
        pre norm; at a post norm, that which gives its output the rms it has at initialization.
    Why it matters:
        The norm then returns x / sqrt(var + eps), which is smaller than it should be: its branch sees a small input and
        adds little, and differences of scale between layers come through.
    Threshold:
        eps over `share` of the variance at more than `most` of the norms with a reading: warning; at fewer, or an eps
        over `large` without readings: info. With 1e-5 on embeddings of std 0.02 it is 0.025.
    How to fix:
        Set eps to 1e-5 (LayerNorm) or 1e-6 (RMSNorm), or scale the embeddings to a variance of 1.
    Example:
        LayerNorm(eps=1.0) in 12 Pre-LN blocks: the branches see inputs of rms 0.7 instead of 1.
    Source:
        The identity var / (var + eps); the share is a proposal, calibrated on this project's healthy runs
        (docs/calibration.md).
    """
    norms = [j for j in wiring.joins if j.eps and j.norm in ("layernorm", "rmsnorm", "groupnorm")]
    if not norms:
        raise CannotJudge("no join has a norm whose eps was read")
    parts = shares(norms, stream_rms, bool(pretrained)) if stream_rms is not None else {}
    if not parts:
        worst = max(norms, key=lambda j: j.eps or 0)
        if (worst.eps or 0) >= large:
            yield _dominates(find, "info", [worst.index], worst.path, worst.eps or 0, None)
        return
    over = [index for index, part in parts.items() if part > share]
    if not over:
        return
    first = next(j for j in norms if j.index == over[0])
    middle = median(parts[index] for index in over)
    severity: Severity = "warning" if len(over) > most * len(parts) and not pretrained else "info"
    yield _dominates(find, severity, over, first.path, first.eps or 0, middle)


def shares(norms: list[Join], stream_rms: Readings, pretrained: bool) -> dict[int, float]:
    """join index -> eps / variance, at the first step that was read."""
    first = stream_rms.first
    held = np.where(first > 0, np.clip(first, 1e-150, 1e150), first)  # a square must neither vanish nor overflow
    rms = {place.index: float(v) for place, v in zip(stream_rms.places, held, strict=True)}
    parts: dict[int, float] = {}
    for join in norms:
        eps = join.eps or 0.0
        before, after = rms.get(join.index - 1, np.nan), rms.get(join.index, np.nan)
        if join.placement in ("pre", "sandwich", "parallel-pre") and np.isfinite(before) and before > 0:
            parts[join.index] = eps / before**2
        elif join.placement == "post" and np.isfinite(after) and after > 0 and not pretrained and eps >= 1e-3:
            parts[join.index] = max(0.0, 1 / after**2 - 1)  # gains are 1 at initialization
        elif join.placement == "post" and np.isfinite(after):
            parts[join.index] = 0.0
    return parts


def _dominates(find: Find, severity: Severity, over: list[int], path: str, eps: float, share: float | None) -> Finding:
    evidence = {"eps": Quantity(eps, "1"), "norms": Quantity(len(over), "norms")}
    message = f"eps is {eps:g} at {span(over)}"
    if share is not None:
        evidence["eps_over_variance"] = Quantity(share, "1")
        message += f", {share:.2g} of the variance of the stream that is normed there"
    return find(
        severity,
        f"{span(over)} ({path} first)",
        message,
        evidence=evidence,
        cause="eps and not the variance sets what the norm divides by",
        fix="set eps to 1e-5 for LayerNorm and 1e-6 for RMSNorm; where embeddings are tiny, scale them to variance 1",
    )


@rule("P005", "half-norm-statistics", explains=("non-finite",))
def half_norm_statistics(
    find: Find,
    wiring: Wiring,
    stream_peak: Readings | None = None,
    stream_rms: Readings | None = None,
    origin: Origin | None = None,
    *,
    room: float = 1.0,
) -> Iterator[Finding]:
    """A norm written by hand takes its statistics in half precision.

    What it does:
        Looks for norms that are written out in the graph with statistics in float16 or bfloat16, and whether the
        squares of the stream stay below the largest float16.
    Why it matters:
        A float16 square is infinite above 255.9, so an RMSNorm returns zeros there; a bfloat16 mean keeps 8 bits, which
        shifts every feature by up to 0.4 %.
    Threshold:
        Info while everything is finite. float16 and a stream whose squares exceed `room` times 65504: warning; error
        where the first value that is not finite was made inside such a norm.
    How to fix:
        Compute the norm in float32: `torch.nn.functional.rms_norm` and `layer_norm` do so by themselves.
    Example:
        `x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)` on a float16 stream of 300: the square is inf, the
        output 0.
    Source:
        IEEE 754: sqrt(65504) = 255.9. Llama's and T5's norms upcast for this reason.
    """
    half = [n for n in wiring.norms if not n.fused and n.dtype in ("float16", "bfloat16")]
    if not half:
        return
    narrow = [n for n in half if n.dtype == "float16"]
    at = stream_peak if stream_peak is not None else stream_rms
    finite = at.values[np.isfinite(at.values)] if at is not None else np.empty(0)
    largest = float(finite.max()) if len(finite) else 0.0
    overflows = bool(narrow) and largest**2 > room * FORMATS["float16"].largest
    broke = origin is not None and any(n.path == origin.path for n in half)
    first = (narrow or half)[0]
    yield find(
        "error" if broke else "warning" if overflows else "info",
        named(narrow or half),
        f"{named(narrow or half)} takes its statistics in {first.dtype}"
        + (f"; the stream reaches {largest:.3g}, whose square float16 cannot hold" if overflows else ""),
        evidence={
            "dtype": Quantity(first.dtype, "dtype"),
            "norms": Quantity(len(narrow or half), "norms"),
            "largest": Quantity(largest, "1"),
        },
        cause="the norm is written out in the dtype of its input",
        fix="replace it by `torch.nn.LayerNorm` or `torch.nn.RMSNorm`, or compute `x.float()` inside it",
    )
