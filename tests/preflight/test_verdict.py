from __future__ import annotations

import pytest

from streamgauge.preflight.rehearsal import Rehearsed
from streamgauge.preflight.verdict import verdict
from streamgauge.rules import Examination
from streamgauge.rules.evidence import series
from streamgauge.vocabulary import Finding, Join, Origin, Schedule, Wiring

WIRING = Wiring((Join(0, "blocks.0", "pre"),))
FOUND = Examination((Finding("W001", "missing-residual", "error", "blocks", "no skip"),))
HINT = Examination((Finding("O005", "decay-on-gains", "info", "optimizer", "decayed"),))
WARMUP = Schedule("given", 100, None, None, (0.01, 0.02))


def rehearsed(**more: object) -> Rehearsed:
    values: dict[str, object] = {"readings": {"loss": series("loss", [3.0, 2.5, 2.0, 1.5])}, "parameters": ()}
    return Rehearsed(**{**values, "taken": 4, "peak_from": 0, **more})


@pytest.mark.parametrize(
    ("examination", "run", "schedule", "answer", "words"),
    [
        (Examination(), None, None, "not assessed", "only in training"),
        (HINT, rehearsed(), None, "not assessed", "fell from 3 to 1.5"),
        (FOUND, rehearsed(), None, "at risk", "missing-residual: no skip"),
        (FOUND, rehearsed(failure="the loss is nan at step 3, batch 3"), None, "will not train", "nan at step 3"),
        (HINT, rehearsed(stopped="the loss rose from 3 to 30 nats"), None, "will not train", "rose"),
        (HINT, rehearsed(stopped="the loss rose from 3 to 30 nats", peak_from=20), WARMUP, "at risk", "ahead of the"),
        (
            HINT,
            rehearsed(failure="the loss is nan at step 30", peak_from=20, origin=Origin("softmax")),
            WARMUP,
            "will not train",
            "nan",
        ),
        (HINT, rehearsed(stopped="the time was over after 4 steps"), None, "not assessed", "fell"),
    ],
)
def test_verdicts(examination, run, schedule, answer: str, words: str) -> None:
    given = verdict(examination, WIRING, run, schedule)
    assert given.answer == answer
    assert words in given.reason
    assert given.probability is None
    assert given.max_lr is None


def test_nothing_is_said_of_a_model_without_joins() -> None:
    assert verdict(Examination(), Wiring(), rehearsed()).reason == "no residual join was found"
