"""What a rule may ask for: the wiring, the readings of a signal, and facts about the run, each by its name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from streamgauge.errors import unknown
from streamgauge.rules.harm import Harm, measure_harm
from streamgauge.vocabulary import RUN, Place, Readings, Wiring

if TYPE_CHECKING:
    from streamgauge.gauge import StoredRun

SIGNALS: dict[str, str] = {
    "stream_rms": "a gauge reads in the forward pass",
    "branch_ratio": "a gauge reads in the forward pass",
    "cosine": "a gauge reads in the forward pass",
    "cosine_excess": "a gauge reads in the forward pass",
    "token_cosine": "a gauge reads in the forward pass",
    "grad_rms": "a gauge reads in the backward pass",
    "stream_peak": "a gauge reads in the forward pass",
    "stream_spread": "a gauge reads in the forward pass",
    "branch_peak": "a gauge reads in the forward pass",
    "retention": "a gauge reads in the backward pass",
    "retention_total": "a gauge reads in the backward pass",
    "loss": "gauge.step(loss) records",
    "lr": "a gauge reads off the optimizer",
    "grad_norm": "a gauge reads after the backward pass",
    "val_loss": "a run with validation data records",
    "step_time": "gauge.step(loss) records",
    "tokens_per_s": "gauge.step(loss) records",
    "attention_logit_max": "gauge.record(...) takes: the largest |q k| / sqrt(d) of the step",
    "attention_entropy": "gauge.record(...) takes: the lowest mean entropy of a head's attention over log(keys)",
    "stable_rank": "gauge.record(...) takes: the lowest ||W||_F^2 / ||W||_2^2 of the matrices",
}

FACTS: dict[str, str] = {
    "vocab": "is the number of classes of the targets",
    "unigram_entropy": "is the entropy of the target tokens in nats (the data set gives it)",
    "unigram_entropy_train": "is the entropy of the training tokens in nats, where it differs",
    "causal_lm": "says that the targets are the next tokens",
    "pretrained": "says that the weights were loaded, not drawn",
    "config": "is the model's configuration",
    "optimizer": "is the optimizer's class name",
    "phase": "says how far it went: init, rehearsal or run",
    "peak_from": "is the rehearsal step from which the learning rate is the peak's",
    "copied_targets": "is the share of targets that equal the input at their own position",
}
"""Plain values: what a run may have saved beside its readings."""

BUILT: dict[str, str] = {
    "parameters": "one backward pass of the model gives",
    "setup": "is read off the optimizer",
    "schedule": "is read off the scheduler, or given by warmup and steps",
    "handling": "is seen in the loop, or given by clip, accumulate and precision",
    "flags": "are attributes of the modules and fields of the config",
    "origin": "is traced on the first batch whose loss or gradient is not finite",
    "probes": "come from experiments on the model's inputs",
}
"""Words of `vocabulary.setup`, built from a live model: a saved fact of such a name is something else."""

KNOWN: dict[str, str] = {
    "wiring": "one forward pass of the model gives",
    "harm": "follows from the loss",
    **SIGNALS,
    **FACTS,
    **BUILT,
}
"""Every name that a rule may have as an argument, and where its value comes from."""


class CannotJudge(Exception):  # noqa: N818 (an answer, not an error)
    """Raised by a rule that has its evidence and still cannot tell; the text is the reason shown to the user."""


@dataclass(frozen=True)
class Evidence(Mapping[str, object]):
    """All that is known about one model or run: name -> value, as a plain mapping.

    wiring    what was read off the model, None where it was not
    readings  signal -> Readings; an empty one counts as missing
    facts     name -> value, the names of `FACTS` and `BUILT` (anything else raises InputError)

    `evidence["harm"]` is derived: whether the loss shows harm (`rules.harm`).
    """

    wiring: Wiring | None = None
    readings: Mapping[str, Readings] = field(default_factory=dict)
    facts: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.facts:
            if name not in FACTS and name not in BUILT:
                raise unknown("fact", name, {**FACTS, **BUILT})

    @classmethod
    def of_run(cls, run: StoredRun, **facts: object) -> Evidence:
        """The evidence of a saved run, or of a gauge: its wiring, all its readings, and the facts it holds."""
        known = {name: value for name, value in run.facts.items() if name in FACTS}
        return cls(run.wiring, {name: run.readings(name) for name in run.signals}, {**known, **facts})

    @cached_property
    def harm(self) -> Harm:
        checked = self.readings.get("val_loss")
        entropy = self.facts.get("unigram_entropy")
        if checked is None or not checked.values.size:
            checked, entropy = None, self.facts.get("unigram_entropy_train", entropy)
        return measure_harm(
            self.readings.get("loss"),
            val_loss=checked,
            unigram_entropy=float(entropy) if isinstance(entropy, int | float) else None,
            lr=self.readings.get("lr"),
        )

    @cached_property
    def _values(self) -> dict[str, object]:
        values: dict[str, object] = {"harm": self.harm}
        if self.wiring is not None:
            values["wiring"] = self.wiring
        values.update({name: r for name, r in self.readings.items() if r.values.size})
        values.update({name: fact for name, fact in self.facts.items() if fact is not None})
        return values

    def __getitem__(self, name: str) -> object:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def series(
    signal: str,
    values: Sequence[float] | Sequence[Sequence[float]],
    *,
    unit: str = "1",
    steps: Sequence[int] | None = None,
    paths: Sequence[str] | None = None,
) -> Readings:
    """Readings from plain numbers: [steps] for the whole run, or [steps, places] for sublayers 0, 1, 2 ...

    steps default to 0, 1, 2 ...; paths to the place's index.
    """
    table = np.asarray(values, dtype=np.float64)
    if table.ndim == 1:
        places: tuple[Place, ...] = (RUN,)
        table = table[:, None]
    else:
        names = paths or [str(i) for i in range(table.shape[1])]
        places = tuple(Place(i, name) for i, name in enumerate(names))
    when = np.arange(len(table)) if steps is None else np.asarray(steps)
    return Readings(signal, table, when.astype(np.int64), places, unit)
