"""Rules on what the masks let through."""

from __future__ import annotations

from collections.abc import Iterator

from streamgauge.rules.evidence import CannotJudge
from streamgauge.rules.rule import Find, rule
from streamgauge.vocabulary import Finding, Origin, Probe, Quantity


@rule("D001", "fully-masked-row", explains=("non-finite", "half-overflow"))
def fully_masked_row(find: Find, origin: Origin) -> Iterator[Finding]:
    """A softmax gets a row in which every entry is masked, and returns NaN.

    What it does:
        On the first batch whose loss or gradient is not finite, follows the operations until the first one that makes a
        value that is no number, and looks at its input: a softmax or attention with rows that are -inf everywhere.
    Why it matters:
        exp(-inf) / sum exp(-inf) is 0 / 0. One empty sequence in one batch, or a row of padding only, makes every
        weight NaN at the next step.
    Threshold:
        One such row that made NaN: error, the harm is measured.
    How to fix:
        Mask with a large negative number instead of -inf (`torch.finfo(dtype).min`), let padding queries see
        themselves, or drop empty sequences from the batch; `scaled_dot_product_attention` returns zeros there.
    Example:
        `scores.masked_fill(pad[:, None, :], float("-inf")).softmax(-1)`, and one sequence of the batch is empty.
    Source:
        Cf. pytorch issues 24816, 26098, 64525.
    """
    if not origin.masked_rows:
        return
    place = origin.path or "the model's own code"
    yield find(
        "error",
        place,
        f"batch {origin.step}: {origin.op} in {place} gets {origin.masked_rows} rows that are masked at every entry, "
        "and returns NaN",
        evidence={
            "masked_rows": Quantity(origin.masked_rows, "rows"),
            "batch": Quantity(origin.step, "batch"),
            "operation": Quantity(origin.op, "operation"),
        },
        cause="every key of a query is masked with -inf, as for an empty sequence: the softmax is 0 / 0",
        fix=f"in {place} mask with `torch.finfo(scores.dtype).min` instead of -inf, or drop sequences without tokens "
        "from the batches",
    )


@rule("D002", "target-leak")
def target_leak(
    find: Find,
    probes: tuple[Probe, ...],
    causal_lm: bool | None = None,
    *,
    change: float = 1e-4,
    times: float = 10.0,
) -> Iterator[Finding]:
    """The prediction at a position depends on tokens that come after it.

    What it does:
        Changes the tokens after a position and compares the outputs up to it with those of the same input, and with
        those of a mere repetition.
    Why it matters:
        Where the targets are the next tokens, the model sees what it should predict. The training loss looks better
        than it should, and generation, which has no future, fails.
    Threshold:
        The largest change of an output before the position over `change` of the outputs' rms and over `times` the
        change of a repetition: error. Only where the targets are the next tokens.
    How to fix:
        Give attention its causal mask, take norms over the features of one token, and let convolutions and pooling see
        the past only. Shift targets by one.
    Example:
        `F.layer_norm(x, x.shape[1:])` over tokens and features: the last token changes the output at the first by 1 %.
    Source:
        Cf. speechbrain issue 1569, attention-is-all-you-need-pytorch PR 17; the probe of neural-net-checklist.
    """
    futures = [p for p in probes if p.name == "future"]
    if not futures:
        raise CannotJudge("the model was not probed with another future")
    if not causal_lm:
        raise CannotJudge("whether the targets are the next tokens is not known")
    worst = max(futures, key=lambda p: p.change)
    if not worst.change > max(change, times * worst.noise):
        return
    yield find(
        "error",
        worst.place or "the model",
        f"other tokens after a position change the outputs before it by {worst.change:.2g} of their rms (a repetition: "
        f"{worst.noise:.1g})",
        evidence={"change": Quantity(worst.change, "1"), "noise": Quantity(worst.noise, "1")},
        cause="an operation mixes tokens without the causal mask: attention, a norm or pooling over the sequence, a "
        "convolution that is not causal",
        fix="pass the causal mask to every attention (`is_causal=True`), and norm over the last axis only",
    )
