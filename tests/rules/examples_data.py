"""Evidence that the rules on data and masks must find fault with, and evidence that they must pass."""

from __future__ import annotations

from types import SimpleNamespace

from streamgauge.rules import Evidence
from streamgauge.vocabulary import Origin, Probe


def examples(case: SimpleNamespace) -> dict[str, tuple[Evidence, Evidence]]:
    """Rule -> (sick, healthy), from the builders of `examples.py`."""
    return {
        "fully-masked-row": (
            Evidence(facts={"origin": Origin("softmax", "blocks.0", masked_rows=16, step=20)}),
            Evidence(facts={"origin": Origin("div", "blocks.0.ln1", zero_divisor=True)}),
        ),
        "target-leak": (
            Evidence(facts={"probes": (Probe("future", 0.02, 1e-7),), "causal_lm": True}),
            Evidence(facts={"probes": (Probe("future", 3e-7, 1e-7),), "causal_lm": True}),
        ),
    }
