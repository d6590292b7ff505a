"""Rules on layers that no longer do anything."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamgauge.rules.evidence import CannotJudge
from streamgauge.rules.harm import Harm
from streamgauge.rules.places import at_end, span
from streamgauge.rules.rule import Find, rule
from streamgauge.vocabulary import Finding, Place, Probe, Quantity, Readings


def skips(probes: tuple[Probe, ...], places: tuple[Place, ...]) -> dict[int, Probe]:
    """place index -> the probe that left this sublayer out; a probe names its place by path or by number.

    Sublayers of one block that share a path are taken in order.
    """
    left: dict[str, list[int]] = {}
    for place in places:
        for name in {place.path, str(place), str(place.index), f"sublayer {place.index}"}:
            left.setdefault(name, []).append(place.index)
    found: dict[int, Probe] = {}
    for probe in probes:
        if probe.name == "skip" and left.get(probe.place):
            found[left[probe.place].pop(0)] = probe
    return found


def _trained(phase: str | None, pretrained: bool | None) -> None:
    if phase != "run" and not pretrained:
        raise CannotJudge(
            "sublayers of a model that was not trained do nothing yet: judged in a run, or on loaded weights"
        )


@rule("T003", "layer-collapse", explains=("redundant-layer", "unigram-plateau"))
def layer_collapse(
    find: Find,
    probes: tuple[Probe, ...],
    cosine_excess: Readings,
    harm: Harm,
    phase: str | None = None,
    pretrained: bool | None = None,
    *,
    excess: float = 0.2,
    effect: float = 0.01,
    most: float = 0.5,
) -> Iterator[Finding]:
    """Sublayers write along the stream, and the loss does not miss them.

    What it does:
        Leaves each sublayer out once and takes the change of the loss; beside it the cosine between the streams
        before and after, less the value that independent increments of the same size would give.
    Why it matters:
        A branch that writes in the direction of the stream changes its length only, which the next norm divides out.
        The layer costs its time and learns nothing. The cosine alone does not show it: 0.87 is reached by the third
        of random increments.
    Threshold:
        An excess over `excess` and a change of the loss below `effect` nats (and twice its noise), in more than
        `most` of the sublayers: warning, info where the run trains, error with harm in the loss; in fewer: info. Not
        judged before training. The excess alone separates nothing: healthy runs pass through 0.59 while they learn
        the token frequencies.
    How to fix:
        Norm the branch's input (Pre-LN), scale branches by 1/sqrt(2 L) or each layer's norm by 1/sqrt(layer) (LNS), or
        train fewer layers.
    Example:
        The deep half of a 48-layer Pre-LN model: leaving a block out changes the loss by 0.001 nats.
    Source:
        Sun W.+ 2025 (arXiv 2502.05795), the curse of depth: loss without block l; identity A0 for the baseline. Both
        edges are proposals (docs/calibration.md).
    """
    _trained(phase, pretrained)
    left_out = skips(probes, cosine_excess.places)
    if not left_out:
        raise CannotJudge("no sublayer was left out for a trial")
    row = {p.index: float(v) for p, v in zip(cosine_excess.places, at_end(cosine_excess), strict=True)}
    judged = [i for i in left_out if np.isfinite(row.get(i, np.nan))]
    gone = [i for i in judged if row[i] > excess and abs(left_out[i].change) < max(effect, 2 * left_out[i].noise)]
    if not gone:
        return
    yield find(
        harm.severity("warning") if len(gone) > most * len(judged) else "info",
        span(gone),
        f"{len(gone)} of {len(judged)} sublayers write along the stream (cosine up to {max(row[i] for i in gone):.2f} "
        "above chance), and leaving them out changes the loss by less than 0.01 nats",
        evidence={
            "cosine_excess": Quantity(max(row[i] for i in gone), "1"),
            "loss_change": Quantity(max(abs(left_out[i].change) for i in gone), "nat"),
            "sublayers": Quantity(len(gone), "sublayers"),
        },
        cause="the branches repeat the stream's own direction, which the next norm divides out",
        fix=f"at {span(gone)} norm the branch's input and scale its output by 1/sqrt(2 L), or train fewer layers",
    )


@rule("T009", "redundant-layer")
def redundant_layer(
    find: Find,
    probes: tuple[Probe, ...],
    cosine: Readings,
    phase: str | None = None,
    pretrained: bool | None = None,
    *,
    effect: float = 0.002,
    most: float = 0.5,
) -> Iterator[Finding]:
    """The loss is the same without a sublayer.

    What it does:
        Leaves each sublayer out once, in a trained model, and takes the change of the loss.
    Why it matters:
        What can be left out was trained for nothing; a shallower or narrower model does the same in less time.
    Threshold:
        A change of the loss below `effect` nats and twice its noise. Info; warning where more than `most` of the
        sublayers are so. Not judged before training.
    How to fix:
        Remove the layers and tune on; or give depth a use: LayerNorm Scaling, B2T, smaller branches, more data.
    Example:
        A 24-layer model tuned on a small task: 14 of 48 sublayers change the loss by less than 0.002 nats.
    Source:
        Sun W.+ 2025 (arXiv 2502.05795): pruning deep blocks of trained Pre-LN models. The edge is a proposal.
    """
    _trained(phase, pretrained)
    left_out = skips(probes, cosine.places)
    if not left_out:
        raise CannotJudge("no sublayer was left out for a trial")
    idle = [i for i, probe in left_out.items() if abs(probe.change) < max(effect, 2 * probe.noise)]
    if not idle:
        return
    row = {p.index: float(v) for p, v in zip(cosine.places, at_end(cosine), strict=True)}
    yield find(
        "warning" if len(idle) > most * len(left_out) else "info",
        span(idle),
        f"leaving out any one of {len(idle)} of {len(left_out)} sublayers moves the loss by less than {effect:g} nats",
        evidence={
            "loss_change": Quantity(max(abs(left_out[i].change) for i in idle), "nat"),
            "sublayers": Quantity(len(idle), "sublayers"),
            "cosine": Quantity(float(np.nanmean([row[i] for i in idle])), "1"),
        },
        cause="these sublayers change the stream in ways that nothing behind them reads",
        fix=f"remove {span(idle)} one at a time and compare the validation loss, or scale branches by 1/sqrt(layer)",
    )
