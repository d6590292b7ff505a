"""Rules on values that a half-precision format cannot hold: too large, or changed by too little."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamgauge.rules.evidence import CannotJudge
from streamgauge.rules.optimizer.motion import rates, size, step_rms
from streamgauge.rules.precision.dtypes import FORMATS, half_in_play
from streamgauge.rules.rule import Find, rule
from streamgauge.vocabulary import Finding, Handling, OptimizerSetup, Origin, Parameter, Quantity, Readings, Wiring

LIMIT = FORMATS["float16"].largest


@rule("P003", "half-overflow", explains=("non-finite", "massive-activations"))
def half_overflow(
    find: Find,
    stream_rms: Readings,
    handling: Handling | None = None,
    parameters: tuple[Parameter, ...] | None = None,
    wiring: Wiring | None = None,
    stream_peak: Readings | None = None,
    branch_peak: Readings | None = None,
    origin: Origin | None = None,
    *,
    headroom: float = 2.0,
    spread: float = 4.0,
) -> Iterator[Finding]:
    """A branch or the stream comes near 65504, the largest float16.

    What it does:
        Where anything is computed in float16 (weights, autocast, norms), takes the largest absolute value read in the
        stream and in the branches; without it, `spread` times the rms.
    Why it matters:
        Beyond 65504 float16 is infinite; the next norm or softmax makes NaN of it. Models trained in bfloat16 reach
        such values harmlessly, and break when they are run or tuned in float16. Loss scaling does not help: the
        overflow is in the forward pass.
    Threshold:
        A value (`spread` times the rms where no peak was read) over 65504, or an infinity that float16 made: error.
        Less than `headroom` bits below it (a quarter for 2): warning.
    How to fix:
        Compute in bfloat16. Where only float16 is at hand: keep the stream and the last matrix of each branch in
        float32, or scale both down by a constant, which the norm behind them undoes.
    Example:
        A Pre-LN model left with a stream of rms 1.9e5 by a bfloat16 run: under float16 autocast the first branch output
        is infinite, in bfloat16 the run is healthy.
    Source:
        IEEE 754. Cf. transformers issues 9295 (T5), 5651, 12225, 36822; massive activations: Sun+ 2024 (arXiv
        2402.17762).
    """
    half = half_in_play(handling, parameters, wiring)
    made = origin is not None and origin.dtype == "float16" and origin.value == "inf" and not origin.zero_divisor
    if half is None and not made:
        raise CannotJudge("needs the precision: pass precision=")
    if not half and not made:
        return
    largest, place, signal = 0.0, "the stack", ""
    for readings, factor in ((branch_peak, 1.0), (stream_peak, 1.0), (stream_rms, spread)):
        if readings is None or (readings is stream_rms and signal):
            continue
        finite = np.where(np.isfinite(readings.values), readings.values, -1.0) * factor
        if finite.size and float(finite.max()) > largest:
            largest = float(finite.max())
            _, column = np.unravel_index(int(finite.argmax()), finite.shape)
            where = readings.places[int(column)]
            place, signal = f"sublayer {where.index} ({where.path})", readings.signal
    infinite = any(bool(np.isinf(r.values).any()) for r in (stream_rms, branch_peak, stream_peak) if r is not None)
    over = largest > LIMIT or made or (infinite and not (origin is not None and origin.zero_divisor))
    if not over and largest <= LIMIT / 2**headroom:
        return
    first = next((r for r in (branch_peak, stream_rms) if r is not None and np.isinf(r.values).any()), None)
    if first is not None:
        _, column = np.argwhere(np.isinf(first.values))[0]
        place = f"sublayer {first.places[column].index} ({first.places[column].path})"
    if made and origin is not None and origin.path:
        place = origin.path
    if made and origin is not None:
        largest = max(largest, origin.largest or 0.0)
    bits = np.log2(LIMIT / largest) if largest > 0 else float("nan")
    yield find(
        "error" if over else "warning",
        place,
        (f"values reach {largest:.3g}, and float16 ends at 65504" if largest else "float16 ends at 65504")
        + ("; the first infinite value appears here" if infinite or made else f": {bits:.1f} bits of headroom"),
        evidence={"largest": Quantity(largest, "1"), "limit": Quantity(LIMIT, "1"), "headroom": Quantity(bits, "bit")},
        cause="the weights put out activations larger than float16 can hold",
        fix="compute in bfloat16 (`torch.autocast(device, dtype=torch.bfloat16)`), or keep the branch's last matrix "
        f"and the stream in float32 at {place}",
    )


@rule("P004", "lost-updates", explains=("unigram-plateau", "lr-too-low"))
def lost_updates(
    find: Find,
    parameters: tuple[Parameter, ...],
    setup: OptimizerSetup,
    *,
    most: float = 0.5,
    some: float = 0.1,
) -> Iterator[Finding]:
    """Weights in half precision are updated by less than half of their spacing: nothing changes.

    What it does:
        Compares the rms of one update at the peak learning rate with half the distance from a typical weight to the
        next number of its dtype, for bfloat16 and float16 weights that the optimizer steps directly.
    Why it matters:
        w + dw is rounded to the nearest number. bfloat16 has 8 bits: updates under 1/512 to 1/256 of the weight vanish
        without a trace, and the run stops learning, first where the rate decays.
    Threshold:
        Lost in more than `most` of the weights: warning. In more than `some`: info. Optimizers that round at random or
        keep a float32 copy (Kahan, stochastic, master weights in the name) are left out.
    How to fix:
        Keep float32 weights and compute under bfloat16 autocast; or an optimizer with stochastic rounding or a Kahan
        sum.
    Example:
        AdamW at 1e-5 on `model.bfloat16()` with weights of rms 0.05: an update is 2e-4 of a weight, half a spacing
        2e-3 of it.
    Source:
        Zamirai+ 2020 (arXiv 2010.06192): nearest rounding cancels updates of bfloat16 weights.
    """
    known = ("kahan", "stochastic", "master", "8bit", "mixedprecision", "fp32")
    if any(word in setup.name.lower() for word in known):
        return
    rate = rates(setup, parameters)
    half = [p for p in parameters if p.path in rate and p.dtype in ("bfloat16", "float16") and p.rms]
    if not half:
        return
    judged = [(p, step_rms(p, rate[p.path], setup)) for p in half]
    told = [(p, step) for p, step in judged if step is not None and step > 0]
    if not told:
        raise CannotJudge(f"the size of a step of {setup.name} cannot be told")
    lost = [(p, step) for p, step in told if step < FORMATS[p.dtype].half_ulp(p.rms or 0.0)]
    part = sum(size(p) for p, _ in lost) / sum(size(p) for p, _ in told)
    if part <= some:
        return
    worst, step = max(lost, key=lambda entry: size(entry[0]))
    spacing = FORMATS[worst.dtype].half_ulp(worst.rms or 0.0)
    yield find(
        "warning" if part > most else "info",
        worst.path,
        f"{part:.0%} of the {worst.dtype} weights are updated by less than half of their spacing: {step:.2g} against "
        f"{spacing:.2g} at {worst.path}",
        evidence={
            "lost": Quantity(part, "1"),
            "update_rms": Quantity(step, "1"),
            "half_spacing": Quantity(spacing, "1"),
            "weight_rms": Quantity(worst.rms, "1"),
        },
        cause=f"{worst.dtype} keeps {FORMATS[worst.dtype].fraction + 1} bits, and the sum is rounded to the old weight",
        fix="keep the weights in float32 and compute under `torch.autocast(device, dtype=torch.bfloat16)`",
    )
