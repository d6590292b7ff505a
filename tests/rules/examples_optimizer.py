"""Evidence that the rules on optimizer and schedule must find fault with, and evidence that they must pass."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from streamgauge.rules import Evidence, series
from streamgauge.vocabulary import Handling, OptimizerSetup, Parameter, ParameterGroup, Readings, Schedule

PATHS = ("blocks.0.ffn.0.weight", "blocks.0.ffn.2.weight", "blocks.0.ln1.weight")


def parameters(rms: float = 0.1, grad: float = 1e-3, dtype: str = "float32") -> tuple[Parameter, ...]:
    """Two matrices and a gain."""
    matrices = tuple(Parameter(p, (64, 64), dtype, "Linear", rms=rms, grad_rms=grad) for p in PATHS[:2])
    return (*matrices, Parameter(PATHS[2], (64,), dtype, "LayerNorm", rms=1.0, grad_rms=grad))


def setup(lr: float = 1e-3, name: str = "AdamW", *, peak: float | None = None, decay: float = 0.0, **more: object):
    """One group of all parameters; Adam's constants unless the name says SGD."""
    constants = {"momentum": 0.0} if name == "SGD" else {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
    return OptimizerSetup(name, (ParameterGroup(PATHS, lr, peak, decay),), **{**constants, **more})


def wave(values: list[float], signal: str = "loss", noise: float = 0.02) -> Readings:
    """The values with a little batch noise."""
    jitter = noise * np.random.default_rng(1).standard_normal(len(values))
    return series(signal, (np.asarray(values) + jitter).tolist(), unit="nat")


RISES = wave([4.2, 9.0, 14.0, 12.0, 10.0, 8.0, 7.5, 7.0, 6.5, 6.2, 6.0, 6.0, 5.9, 5.9, 5.8, 5.8, 5.8, 5.7, 5.7, 5.7])
FALLS = wave(list(np.linspace(4.2, 3.0, 20)))
FLAT = wave([4.2] * 20)

BURSTING = [1.0] * 100 + [12.0] + [1.0] * 60 + [15.0] + [1.0] * 60
SPIKING = [2.0] * 102 + [4.5, 3.5, 2.6] + [2.0] * 57 + [4.8, 3.2] + [2.0] * 58


def examples(case: SimpleNamespace) -> dict[str, tuple[Evidence, Evidence]]:
    """Rule -> (sick, healthy), from the builders of `examples.py`."""
    return {
        "lr-too-high": (
            Evidence(None, {"loss": RISES}, {"setup": setup(0.3), "parameters": parameters()}),
            Evidence(None, {"loss": FALLS}, {"setup": setup(1e-3), "parameters": parameters()}),
        ),
        "lr-too-low": (
            Evidence(None, {"loss": FLAT}, {"setup": setup(1e-7), "parameters": parameters()}),
            Evidence(None, {"loss": FALLS}, {"setup": setup(1e-3), "parameters": parameters()}),
        ),
        "post-norm-without-warmup": (
            Evidence(
                case.stack("post"),
                {
                    "loss": FLAT,
                    "token_cosine": series("token_cosine", [[0.5, 0.98], [0.5, 1.0]], steps=[0, 10]),
                    "retention_total": series("retention_total", [0.9, 0.001], steps=[0, 10]),
                },
                {"setup": setup(), "schedule": Schedule()},
            ),
            Evidence(
                case.stack("post"),
                {"loss": FALLS, "token_cosine": series("token_cosine", [[0.5, 0.98], [0.5, 0.6]], steps=[0, 10])},
                {"setup": setup(), "schedule": Schedule("LambdaLR", 2000, 10000, 1.0, (0.0, 0.0005, 0.001))},
            ),
        ),
        "warmup-too-slow": (
            Evidence(
                facts={"schedule": Schedule("LambdaLR", 99, None, 50.0, tuple((t + 1) / 100 for t in range(100)))}
            ),
            Evidence(facts={"schedule": Schedule("LambdaLR", 99, None, 1.0, tuple((t + 1) / 100 for t in range(100)))}),
        ),
        "decay-on-gains": (
            Evidence(facts={"setup": setup(decay=0.1), "parameters": parameters()}),
            Evidence(facts={"setup": setup(decay=0.0), "parameters": parameters()}),
        ),
        "adam-eps": (
            Evidence(facts={"setup": setup(eps=1e-2), "parameters": parameters()}),
            Evidence(facts={"setup": setup(), "parameters": parameters()}),
        ),
        "stale-beta2": (
            Evidence(None, {"loss": wave(SPIKING), "grad_norm": wave(BURSTING, "grad_norm")}, {"setup": setup()}),
            Evidence(None, {"loss": case.TRAINS, "grad_norm": wave([1.0] * 200, "grad_norm")}, {"setup": setup()}),
        ),
        "always-clipping": (
            Evidence(
                None,
                {"grad_norm": wave([2.0] * 40, "grad_norm")},
                {"handling": Handling(clip=0.01), "setup": setup(0.1, "SGD")},
            ),
            Evidence(
                None,
                {"grad_norm": wave([2.0] * 40, "grad_norm")},
                {"handling": Handling(clip=4.0), "setup": setup(0.1, "SGD")},
            ),
        ),
    }
