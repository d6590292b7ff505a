"""Evidence that the rules on wiring must find fault with, and evidence that they must pass."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from streamgauge.rules import Evidence, series
from streamgauge.vocabulary import Flag, Norm, Parameter, Probe, Readings, Wiring

LAYER = "blocks.0.ln1"


def normed(
    case: SimpleNamespace, size: int = 64, *, role: str = "join", kind: str = "layernorm", **more: object
) -> Wiring:
    """A Pre-LN stack with one norm listed."""
    return replace(case.stack(), norms=(Norm(LAYER, kind, 1e-5, size, role=role),), **more)


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


def part_bare(case: SimpleNamespace) -> Wiring:
    """Attention adds to the stream, the feed-forward of each block replaces it."""
    joins = case.stack().joins
    return Wiring(joins[::2], tuple(replace(j, placement="none") for j in joins[1::2]), True)


def scaled(case: SimpleNamespace, placement: str, blocks: int, **scales: float) -> Wiring:
    base = case.stack(placement, blocks)
    return replace(base, joins=tuple(replace(j, **scales) for j in base.joins))


def one_stray(case: SimpleNamespace) -> Wiring:
    joins = list(case.stack().joins)
    joins[12] = replace(joins[12], placement="none")
    return Wiring(tuple(joins), (), True)


def ratios(at: int, value: float) -> dict[str, Readings]:
    row = [0.2] * 24
    row[at] = value
    return {"branch_ratio": series("branch_ratio", [row])}


PARTIAL = "2 of 3 products of the branch in blocks.0.attention read the stream without its norm"
NOTE = "residual from normed: 23 sums are normed only in the block of the next join, which takes its skip"


def examples(case: SimpleNamespace) -> dict[str, tuple[Evidence, Evidence]]:
    return {
        "partial-residual": (Evidence(part_bare(case)), Evidence(case.stack())),
        "deep-post-norm": (Evidence(case.stack("post", 18), FAILS), Evidence(case.stack("post", 18), HOLDS)),
        "doubled-final-norm": (
            Evidence(replace(case.stack("post", 18), norms=(Norm("norm", "layernorm", role="final"),)), FAILS),
            Evidence(replace(case.stack("post", 18), norms=(Norm("norm", "layernorm", role="final"),)), HOLDS),
        ),
        "mixed-placement": (Evidence(one_stray(case), ratios(12, 1.5)), Evidence(one_stray(case), ratios(12, 0.3))),
        "residual-from-normed": (
            Evidence(replace(case.stack("post"), notes=(NOTE,)), {"token_cosine": case.COLLAPSED}),
            Evidence(case.stack("post"), {"token_cosine": case.COLLAPSED}),
        ),
        "partial-norm": (
            Evidence(
                replace(case.stack(), unplaced=(PARTIAL,)), {"stream_rms": case.per_place("stream_rms", 1.0, 4.0)}
            ),
            Evidence(case.stack(), {"stream_rms": case.per_place("stream_rms", 1.0, 4.0)}),
        ),
        "norm-axis": (
            Evidence(normed(case, 1024), {}, {"parameters": (gain(64),)}),
            Evidence(normed(case, 64), {}, {"parameters": (gain(64),)}),
        ),
        "narrow-norm": (Evidence(normed(case, 1)), Evidence(normed(case, 64))),
        "unused-norm": (
            Evidence(
                case.stack(final_norm=False),
                {},
                {"parameters": (gain(64, path="ln_f", grad=None), matrix("head.weight"))},
            ),
            Evidence(case.stack(), {}, {"parameters": (gain(64, path="ln_f", grad=None), matrix("head.weight"))}),
        ),
        "norm-flag-ignored": (
            Evidence(case.stack("post"), {}, {"flags": (Flag("", "normalize_before", True),)}),
            Evidence(case.stack("pre"), {}, {"flags": (Flag("", "normalize_before", True),)}),
        ),
        "batch-norm-over-padding": (
            Evidence(normed(case, 512, kind="batchnorm"), {}, {"probes": (Probe("padding", 0.03, 1e-7),)}),
            Evidence(normed(case, 512, kind="batchnorm"), {}, {"probes": (Probe("padding", 1e-7, 1e-7),)}),
        ),
        "output-norm-without-qk-norm": (
            Evidence(case.stack("output"), case.ratio(200.0)),
            Evidence(case.stack("output"), case.ratio(6.0)),
        ),
        "wrong-depth-scale": (
            Evidence(scaled(case, "post", 48, skip_scale=1.86), {"token_cosine": case.COLLAPSED}),
            Evidence(scaled(case, "post", 48, skip_scale=3.13), {"token_cosine": case.COLLAPSED}),
        ),
        "identity-layer": (
            Evidence(
                case.stack(), {"branch_ratio": series("branch_ratio", [[0.0] * 24, [1e-3] * 23 + [0.0]], steps=[0, 10])}
            ),
            Evidence(case.stack(), {"branch_ratio": series("branch_ratio", [[0.0] * 24, [1e-3] * 24], steps=[0, 10])}),
        ),
    }
