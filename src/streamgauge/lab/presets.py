"""Comparisons that are ready to run."""

from __future__ import annotations

from streamgauge.lab.comparison import Comparison
from streamgauge.registry import Registry

# At 24 blocks Post-LN is past the depth where it is reported to fail (18 in arXiv:2206.00330), Pre-LN and B2T are not.
# The sizes keep four arms within minutes on two cores.
FIRST_LIGHT = Comparison.of(
    schemes=("none", "post", "pre", "b2t"),
    depth=24,
    width=64,
    heads=4,
    context=64,
    batch=8,
    steps=600,
    lr=1e-3,
    every=20,
    validate_every=150,
    validation_batches=32,
)

PRESETS: Registry[Comparison] = Registry("preset", {"first-light": FIRST_LIGHT})
