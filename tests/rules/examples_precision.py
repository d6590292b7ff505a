"""Evidence that the rules on precision must find fault with, and evidence that they must pass."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from streamgauge.rules import Evidence, series
from streamgauge.vocabulary import Handling, Norm, Wiring

HERE = Path(__file__).parent
OPTIMIZER = SimpleNamespace(**runpy.run_path(str(HERE / "examples_optimizer.py")))


def normed(case: SimpleNamespace, eps: float, dtype: str = "float16", *, fused: bool = False) -> Wiring:
    """A Pre-LN stack with two norms listed, and that eps at its joins."""
    norms = tuple(Norm(f"blocks.0.ln{i}", "layernorm", eps, 64, dtype, fused, "join") for i in (1, 2))
    stack = case.stack()
    return replace(stack, norms=norms, joins=tuple(replace(j, eps=eps) for j in stack.joins))


def stream(rms: float) -> dict[str, object]:
    return {"stream_rms": series("stream_rms", [[rms] * 24])}


def examples(case: SimpleNamespace) -> dict[str, tuple[Evidence, Evidence]]:
    """Rule -> (sick, healthy), from the builders of `examples.py`."""
    return {
        "eps-underflow": (Evidence(normed(case, 1e-12)), Evidence(normed(case, 1e-12, fused=True))),
        "eps-dominates": (
            Evidence(normed(case, 1.0, "float32"), stream(1.2)),
            Evidence(normed(case, 1e-5, "float32"), stream(0.02)),
        ),
        "half-norm-statistics": (
            Evidence(normed(case, 1e-5), stream(300.0)),
            Evidence(normed(case, 1e-5), stream(2.0)),
        ),
        "half-overflow": (
            Evidence(case.stack(), stream(1e5), {"handling": Handling(autocast="float16")}),
            Evidence(case.stack(), stream(1e5), {"handling": Handling(autocast="bfloat16")}),
        ),
        "lost-updates": (
            Evidence(
                facts={"parameters": OPTIMIZER.parameters(0.05, dtype="bfloat16"), "setup": OPTIMIZER.setup(1e-5)},
            ),
            Evidence(
                facts={"parameters": OPTIMIZER.parameters(0.05, dtype="float32"), "setup": OPTIMIZER.setup(1e-5)},
            ),
        ),
    }
