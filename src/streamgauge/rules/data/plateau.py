"""Rules that hold the loss against what the data allow."""

from __future__ import annotations

from collections.abc import Iterator

from streamgauge.rules.evidence import CannotJudge
from streamgauge.rules.harm import warming_up
from streamgauge.rules.outcome import ENOUGH_STEPS, outcome
from streamgauge.rules.rule import Find, rule
from streamgauge.vocabulary import Finding, Quantity, Readings


@rule("D003", "unigram-plateau")
def unigram_plateau(
    find: Find,
    loss: Readings,
    unigram_entropy: float,
    val_loss: Readings | None = None,
    lr: Readings | None = None,
    unigram_entropy_train: float | None = None,
    *,
    margin: float = 0.1,
    min_steps: int = ENOUGH_STEPS,
) -> Iterator[Finding]:
    """The loss stays at what token frequencies alone give.

    What it does:
        Compares the final loss (validation where there is one, else the mean of the last tenth of the training
        losses) with the unigram entropy of the targets.
    Why it matters:
        The unigram entropy is reached by a head that ignores its input. A model that stays there uses no context:
        nothing that the stack computes reaches the loss.
    Threshold:
        After `min_steps` steps and the warm-up: flat, and not `margin` nats below the unigram entropy. A loss that
        still falls steadily is slow, not stalled, and passes. Always error: the harm is measured.
    How to fix:
        Look for the cause among the other findings. Where there is none: check that inputs and targets belong
        together, that the mask lets tokens see each other, and that the learning rate is not far too low or high.
    Example:
        24 blocks without residuals on bytes, 200 steps: final loss 3.07 nats, unigram entropy 3.14. The same with
        Pre-LN: 2.48.
    Source:
        Design of this project: the label "stalled", 0.1 nat under the constant predictor.
    """
    steps = int(loss.steps[-1] - loss.steps[0])
    if steps < min_steps or len(loss) < 8:
        raise CannotJudge(f"{steps} steps are too few to tell a plateau from a start (at least {min_steps:g})")
    if val_loss is None and unigram_entropy_train is not None:
        unigram_entropy = unigram_entropy_train
    end = outcome(loss, val_loss=val_loss, unigram_entropy=unigram_entropy, margin=margin)
    if end.label == "stalled" and warming_up(lr):
        raise CannotJudge("the learning rate is still warming up")
    if end.label != "stalled" or end.final_loss is None:
        return
    yield find(
        "error",
        "run",
        f"after {steps} steps the loss is {end.final_loss:.3f} nats and flat; token frequencies alone give "
        f"{unigram_entropy:.3f}",
        evidence={
            "final_loss": Quantity(end.final_loss, "nat"),
            "unigram_entropy": Quantity(float(unigram_entropy), "nat"),
            "steps": Quantity(steps, "step"),
        },
        cause="the output ignores the context: the head has learned the frequencies of the tokens and no more",
        fix="mend the cause found beside this; where there is none, check that targets are inputs shifted by one, that "
        " the attention mask is not inverted, and try a learning rate 10 times lower and 10 times higher",
    )
