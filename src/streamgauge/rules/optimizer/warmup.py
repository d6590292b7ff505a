"""Rules on the start of the schedule."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from streamgauge.rules.evidence import CannotJudge
from streamgauge.rules.harm import Harm
from streamgauge.rules.optimizer.motion import adaptive, highest_rate
from streamgauge.rules.optimizer.trend import FEWEST, Trend, trend
from streamgauge.rules.outcome import curve_of
from streamgauge.rules.places import site
from streamgauge.rules.rule import Find, rule
from streamgauge.rules.structure.strain import blocks_of, plain_post, strain
from streamgauge.vocabulary import Finding, OptimizerSetup, Quantity, Readings, Schedule, Severity, Wiring


@rule(
    "O003",
    "post-norm-without-warmup",
    explains=("token-collapse", "vanishing-gradient", "exploding-gradient", "unigram-plateau", "layer-collapse"),
)
def post_norm_without_warmup(
    find: Find,
    wiring: Wiring,
    setup: OptimizerSetup | None = None,
    schedule: Schedule | None = None,
    harm: Harm | None = None,
    loss: Readings | None = None,
    lr: Readings | None = None,
    token_cosine: Readings | None = None,
    retention_total: Readings | None = None,
    phase: str | None = None,
    vocab: int | None = None,
    unigram_entropy: float | None = None,
    *,
    deep: float = 6,
    early: float = 10,
    gone: float = 0.02,
    fraction: float = 0.05,
) -> Iterator[Finding]:
    """Post-LN layers meet the full learning rate at the first step.

    What it does:
        Finds stacks of post-norm joins whose optimizer starts at its peak rate: no scheduler, no warm-up. The losses
        of the rehearsal, the cosine between tokens after the last sublayer and the retention of the gradient say
        whether it hurts.
    Why it matters:
        At the start the gradients of the last Post-LN layers are large, whatever the depth, and Adam's second moments
        are those of a few batches: full steps drive the tokens together before the first layers have learned
        anything, and the run stays where it can predict no more than frequencies.
    Threshold:
        Fewer than `early` steps to the peak, and joins that are plain Post-LN (no B2T, no scaled skip): info by
        itself. Warning with at least `deep` blocks where, in rehearsal, the loss stands still less than 0.2 nats
        below what token frequencies give, at most `gone` of the initial 1 - cosine between tokens is left after the
        last sublayer, and the gradient retention fell below `fraction` of what it was. Error where the loss of a run
        shows harm, info where it trains. No finding for SGD, whose steps follow the gradient.
    How to fix:
        Warm the learning rate up over at least 1 % of the run (4,000 steps in the original Transformer), at a lower
        peak; or use a wiring that needs none: Pre-LN, B2T, DeepNorm's alpha. In deep stacks with Xavier weights a
        warm-up alone does not help: 18 layers at 1e-3 fail with 100 warm-up steps as well.
    Example:
        18 layers of `nn.TransformerEncoderLayer` (norm_first=False), Xavier, Adam at 1e-3 from step 0: after 10 steps
        all tokens point the same way (cosine 1.000), and the loss stays at the unigram entropy.
    Source:
        Xiong+ 2020 (arXiv 2002.04745), Theorem 1; Liu L.+ 2020 (2004.08249); Huang+ 2020 (T-Fixup). Cf. pytorch issue
        55270. The cosine is calibrated on this project's runs (docs/calibration.md).
    """
    joins = plain_post(wiring)
    if not joins or (setup is not None and not adaptive(setup)):
        return
    steps = _warmup(schedule, setup, lr, phase)
    if steps is None:
        raise CannotJudge("needs the schedule: pass warmup=, schedule=, or the optimizer with its scheduler")
    if steps >= early:
        return
    rate = highest_rate(setup) if setup is not None else float("nan")
    evidence = {"post_norm_joins": Quantity(len(joins), "joins"), "warmup": Quantity(int(steps), "step")}
    if rate == rate and rate > 0:
        evidence["lr"] = Quantity(rate, "1")
    seen = trend(loss) if loss is not None else None
    told = seen is not None and seen.broken is None and seen.steps >= 2 * FEWEST
    stuck = told and seen is not None and _stuck(seen, vocab, unigram_entropy)
    shown = strain(token_cosine, retention_total, None, gone=gone, fraction=fraction)
    message = f"{len(joins)} post-norm joins, and {'no warm-up' if steps < 1 else f'{steps:.0f} steps of warm-up'}"
    if seen is not None:
        evidence |= seen.evidence
        message += f"; the loss goes from {seen.initial:.2f} to {seen.end:.2f} nats in {seen.steps} steps"
    evidence |= shown.evidence
    hurt = stuck and bool(shown.symptom) and blocks_of(joins) >= deep
    severity: Severity = "warning" if hurt else "info"
    if harm is not None and (harm.absent or (harm.measured and hurt)):
        severity = harm.severity("warning")
    yield find(
        severity,
        site(joins),
        message + shown.words,
        evidence=evidence,
        cause="full steps from the start turn the last layers' large gradients into large updates, which drive the "
        "tokens together",
        fix="move the norm to the branch's input (`norm_first=True`, and a norm after the last block), or keep "
        "Post-LN with DeepNorm's alpha or B2T's second skip; a warm-up over 1 % of the run and a third of the peak "
        "rate are enough only for shallow stacks",
    )


def _stuck(seen: Trend, vocab: int | None, unigram_entropy: float | None) -> bool:
    """Does the loss stand still, above what a head that ignores its input reaches?"""
    baseline = unigram_entropy if unigram_entropy is not None else math.log(vocab) if vocab else math.inf
    return seen.middle - seen.end < seen.margin and seen.end > min(seen.initial, baseline) - 0.2


def _warmup(
    schedule: Schedule | None, setup: OptimizerSetup | None, lr: Readings | None, phase: str | None
) -> float | None:
    """Optimizer steps until the rate is at 90 % of its peak; None where it is not known."""
    if schedule is not None:
        if schedule.planned:
            reached = [t for t, share in enumerate(schedule.planned) if share >= 0.9]
            ticks = float(reached[0]) if reached else float(len(schedule.planned))
            return ticks * (schedule.steps_per_tick or 1.0)
        if schedule.warmup_steps is not None:
            return float(schedule.warmup_steps)
        if setup is not None and any(g.peak_lr and g.lr < 0.5 * g.peak_lr for g in setup.groups):
            return None
        return 0.0
    if phase not in (None, "run") or lr is None or len(lr) < 2 * FEWEST:
        return None  # the rates of a rehearsal are its own
    rates = curve_of(lr)
    return float(np.argmax(rates >= 0.9 * rates.max()))


@rule("O004", "warmup-too-slow", explains=("lr-too-low", "unigram-plateau"))
def warmup_too_slow(
    find: Find,
    schedule: Schedule | None = None,
    setup: OptimizerSetup | None = None,
    lr: Readings | None = None,
    phase: str | None = None,
    *,
    reached: float = 0.5,
    per_epoch: float = 5,
    ahead: float = 20,
    share: float = 0.5,
) -> Iterator[Finding]:
    """The learning rate will not get to its peak: the scheduler ticks per epoch, or the warm-up outlasts the run.

    What it does:
        Counts optimizer steps between two ticks of the scheduler, and works out the step at which the planned schedule
        reaches its peak. Of a run it reads the learning rates themselves.
    Why it matters:
        A warm-up of 4,000 ticks that are epochs never ends: the whole run is made at a small fraction of the rate, and
        the loss falls slowly for no visible reason.
    Threshold:
        A scheduler that ticks less often than every `per_epoch` steps and plans at least `ahead` ticks, or more than
        `share` of a run of known length, below `reached` of its peak: warning. A warm-up longer than `share` of the
        known length of the run: warning. Of a finished run: the rate changed in steps of at least `per_epoch` and
        ended below `reached` of its base rate while it was still rising: warning.
    How to fix:
        Call `scheduler.step()` after every `optimizer.step()`, not once per epoch; or count the warm-up in the unit in
        which the scheduler ticks.
    Example:
        `LambdaLR(opt, lambda s: min(1, (s + 1) / 100))` stepped once in 50 steps: after 200 steps the rate is at 5 % of
        its peak; stepped every time it is at 100 %.
    Source:
        Vaswani+ 2017 (arXiv 1706.03762), section 5.3: the warm-up counts steps. Cf. coqui TTS issue 1611.
    """
    if schedule is None and (lr is None or setup is None):
        raise CannotJudge("needs the schedule: pass warmup= and steps=, schedule=, or the optimizer with its scheduler")
    story = _planned(schedule, reached, per_epoch, ahead, share) if schedule is not None else None
    if story is None and lr is not None:
        story = _seen(lr, setup, phase, reached, per_epoch)
    if story is None:
        return
    message, evidence = story
    yield find(
        "warning",
        "schedule",
        message,
        evidence=evidence,
        cause="the warm-up counts in steps what the loop counts in epochs, or is longer than the run",
        fix="call `scheduler.step()` right after every `optimizer.step()`, or give the warm-up in the unit in which "
        "the scheduler is stepped; keep it at 1 to 10 % of the run",
    )


Story = tuple[str, dict[str, Quantity]]


def _planned(schedule: Schedule, reached: float, per_epoch: float, ahead: float, share: float) -> Story | None:
    """From the plan and the pace of its ticks."""
    pace = schedule.steps_per_tick
    slow = [t for t, part in enumerate(schedule.planned) if part >= reached]
    ticks = slow[0] if slow else len(schedule.planned)
    if pace is not None and pace >= per_epoch and schedule.planned and schedule.planned[0] < reached and ticks > 1:
        steps = ticks * pace
        total = schedule.total_steps
        if ticks >= ahead or (total is not None and steps > share * total):
            text = f"the scheduler ticks once in {pace:.0f} optimizer steps, so the rate reaches {reached:.0%} of its "
            text += f"peak only at step {steps:.0f}, and is at {schedule.planned[0]:.1%} of it at the start"
            evidence = {"steps_per_tick": Quantity(float(pace), "step"), "warmup": Quantity(int(steps), "step")}
            return text, evidence | {"start": Quantity(float(schedule.planned[0]), "1")}
    if schedule.warmup_steps and schedule.total_steps:
        warmup = schedule.warmup_steps * max(1.0, pace or 1.0)
        if warmup > share * schedule.total_steps:
            text = f"the warm-up takes {warmup:.0f} of the run's {schedule.total_steps} steps"
            total_steps = Quantity(schedule.total_steps, "step")
            return text, {"warmup": Quantity(int(warmup), "step"), "total_steps": total_steps}
    return None


def _seen(
    lr: Readings,
    setup: OptimizerSetup | None,
    phase: str | None,
    reached: float,
    pace: float,
) -> Story | None:
    """From the rates of a run: a staircase that is still below the base rate at its end."""
    if phase not in (None, "run") or len(lr) < 4 * FEWEST:
        return None
    rates = curve_of(lr)
    base = highest_rate(setup) if setup is not None else 0.0
    rises = lr.steps[1:][np.diff(rates) > 0]
    if base <= 0 or not rates[-1] < reached * base or rates[-1] < rates.max():
        return None
    gaps = np.diff(rises)
    if len(rises) >= 2 and float(np.median(gaps)) < pace:
        return None
    text = f"after {int(lr.steps[-1])} steps the rate is at {rates[-1] / base:.1%} of its peak {base:.3g}"
    text += f", having risen {len(rises)} times"
    return text, {"lr": Quantity(float(rates[-1]), "1"), "peak_lr": Quantity(base, "1")}
