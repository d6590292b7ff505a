from __future__ import annotations

import pytest

from streamgauge.errors import InputError
from streamgauge.gauge import SIGNALS, signal

PLACE = ["stream_rms", "branch_ratio", "cosine", "cosine_excess", "token_cosine", "grad_rms", "retention"]
RUN = ["loss", "lr", "grad_norm", "val_loss", "retention_total", "step_time", "tokens_per_s"]
FORWARD, BACKWARD = {"stream", "branch", "out"}, {"grad_stream", "grad_out"}


def test_the_signals_of_record_are_there_at_their_level() -> None:
    assert {name for name, s in SIGNALS.items() if s.level == "place"} >= set(PLACE)
    assert {name for name, s in SIGNALS.items() if s.level == "run"} >= set(RUN)


@pytest.mark.parametrize("name", [*PLACE, *RUN])
def test_a_signal_explains_itself(name: str) -> None:
    signal = SIGNALS[name]
    assert signal.name == name
    assert signal.unit
    assert len(signal.doc.split()) >= 8


@pytest.mark.parametrize("name", PLACE)
def test_only_a_signal_that_asks_for_a_gradient_waits_for_it(name: str) -> None:
    asked = set(SIGNALS[name].needs)
    assert SIGNALS[name].backward == bool(asked & BACKWARD)
    assert asked <= FORWARD | BACKWARD | {"site"} | set(SIGNALS)


def test_a_misspelt_name_gets_the_closest() -> None:
    with pytest.raises(InputError, match="unknown signal 'retension'; did you mean 'retention'"):
        SIGNALS["retension"]


def test_a_signal_cannot_ask_for_what_no_place_offers() -> None:
    def weight_rms(weight: object) -> None: ...

    with pytest.raises(ValueError, match="asks for \\['weight'\\]"):
        signal()(weight_rms)
    assert "weight_rms" not in SIGNALS
