"""Evidence that the rules on wiring must find fault with, and evidence that they must pass."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from streamgauge.rules import Evidence, series
from streamgauge.vocabulary import Flag, Norm, Parameter, Probe, Readings, Wiring

CASE = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("examples.py"))))

LAYER = "blocks.0.ln1"


def normed(size: int = 64, *, role: str = "join", kind: str = "layernorm", **more: object) -> Wiring:
    """A Pre-LN stack with one norm listed."""
    return replace(CASE.stack(), norms=(Norm(LAYER, kind, 1e-5, size, role=role),), **more)


def gain(*shape: int, path: str = LAYER, grad: float | None = 1e-3) -> Parameter:
    return Parameter(f"{path}.weight", shape, "float32", "LayerNorm", rms=1.0, grad_rms=grad)


def matrix(path: str = "blocks.0.ffn.0.weight", out: int = 256, fan_in: int = 64, **more: object) -> Parameter:
    values = {"rms": 0.1, "grad_rms": 1e-3, "largest_grad": 1e-2, **more}
    return Parameter(path, (out, fan_in), "float32", values.pop("owner", "Linear"), **values)


def rehearsal(tokens_apart: tuple[float, ...], retention: tuple[float, ...]) -> dict[str, Readings]:
    """Step 0, 5, 10 ... of a rehearsal: 1 - cosine after the last sublayer, and the gradient's retention."""
    steps = [5 * i for i in range(len(tokens_apart))]
    return {
        "token_cosine": series("token_cosine", [[0.1, 1 - d] for d in tokens_apart], steps=steps),
        "retention_total": series("retention_total", list(retention), steps=steps),
    }


FAILS = rehearsal((1.3e-2, 4e-5, 1e-6), (0.91, 0.01, 0.008))
HOLDS = rehearsal((1.3e-2, 6e-4, 8e-4), (0.91, 0.21, 0.25))


def part_bare() -> Wiring:
    """Attention adds to the stream, the feed-forward of each block replaces it."""
    joins = CASE.stack().joins
    return Wiring(joins[::2], tuple(replace(j, placement="none") for j in joins[1::2]), True)


def scaled(placement: str, blocks: int, **scales: float) -> Wiring:
    base = CASE.stack(placement, blocks)
    return replace(base, joins=tuple(replace(j, **scales) for j in base.joins))


def one_stray() -> Wiring:
    joins = list(CASE.stack().joins)
    joins[12] = replace(joins[12], placement="none")
    return Wiring(tuple(joins), (), True)


def ratios(at: int, value: float) -> dict[str, Readings]:
    row = [0.2] * 24
    row[at] = value
    return {"branch_ratio": series("branch_ratio", [row])}


PARTIAL = "2 of 3 products of the branch in blocks.0.attention read the stream without its norm"
NOTE = "residual from normed: 23 sums are normed only in the block of the next join, which takes its skip"

EXAMPLES: dict[str, tuple[Evidence, Evidence]] = {
    "partial-residual": (Evidence(part_bare()), Evidence(CASE.stack())),
    "deep-post-norm": (Evidence(CASE.stack("post", 18), FAILS), Evidence(CASE.stack("post", 18), HOLDS)),
    "doubled-final-norm": (
        Evidence(replace(CASE.stack("post", 18), norms=(Norm("norm", "layernorm", role="final"),)), FAILS),
        Evidence(replace(CASE.stack("post", 18), norms=(Norm("norm", "layernorm", role="final"),)), HOLDS),
    ),
    "mixed-placement": (Evidence(one_stray(), ratios(12, 1.5)), Evidence(one_stray(), ratios(12, 0.3))),
    "residual-from-normed": (
        Evidence(replace(CASE.stack("post"), notes=(NOTE,)), {"token_cosine": CASE.COLLAPSED}),
        Evidence(CASE.stack("post"), {"token_cosine": CASE.COLLAPSED}),
    ),
    "partial-norm": (
        Evidence(replace(CASE.stack(), unplaced=(PARTIAL,)), {"stream_rms": CASE.per_place("stream_rms", 1.0, 4.0)}),
        Evidence(CASE.stack(), {"stream_rms": CASE.per_place("stream_rms", 1.0, 4.0)}),
    ),
    "norm-axis": (
        Evidence(normed(1024), {}, {"parameters": (gain(64),)}),
        Evidence(normed(64), {}, {"parameters": (gain(64),)}),
    ),
    "narrow-norm": (Evidence(normed(1)), Evidence(normed(64))),
    "unused-norm": (
        Evidence(
            CASE.stack(final_norm=False), {}, {"parameters": (gain(64, path="ln_f", grad=None), matrix("head.weight"))}
        ),
        Evidence(CASE.stack(), {}, {"parameters": (gain(64, path="ln_f", grad=None), matrix("head.weight"))}),
    ),
    "norm-flag-ignored": (
        Evidence(CASE.stack("post"), {}, {"flags": (Flag("", "normalize_before", True),)}),
        Evidence(CASE.stack("pre"), {}, {"flags": (Flag("", "normalize_before", True),)}),
    ),
    "batch-norm-over-padding": (
        Evidence(normed(512, kind="batchnorm"), {}, {"probes": (Probe("padding", 0.03, 1e-7),)}),
        Evidence(normed(512, kind="batchnorm"), {}, {"probes": (Probe("padding", 1e-7, 1e-7),)}),
    ),
    "output-norm-without-qk-norm": (
        Evidence(CASE.stack("output"), CASE.ratio(200.0)),
        Evidence(CASE.stack("output"), CASE.ratio(6.0)),
    ),
    "wrong-depth-scale": (
        Evidence(scaled("post", 48, skip_scale=1.86), {"token_cosine": CASE.COLLAPSED}),
        Evidence(scaled("post", 48, skip_scale=3.13), {"token_cosine": CASE.COLLAPSED}),
    ),
    "identity-layer": (
        Evidence(
            CASE.stack(), {"branch_ratio": series("branch_ratio", [[0.0] * 24, [1e-3] * 23 + [0.0]], steps=[0, 10])}
        ),
        Evidence(CASE.stack(), {"branch_ratio": series("branch_ratio", [[0.0] * 24, [1e-3] * 24], steps=[0, 10])}),
    ),
}
