"""Evidence that the rules on initialization must find fault with, and evidence that they must pass."""

from __future__ import annotations

from types import SimpleNamespace

from streamgauge.rules import Evidence, series
from streamgauge.vocabulary import Parameter, Probe


def matrix(path: str, rms: float, grad: float | None, shape: tuple[int, int] = (64, 64), **more: object) -> Parameter:
    owner = str(more.pop("owner", "Linear"))
    return Parameter(path, shape, "float32", owner, rms=rms, grad_rms=grad, largest_grad=grad and 4 * grad, **more)


def block(first: float, first_grad: float, second: float, second_grad: float) -> tuple[Parameter, ...]:
    """Two matrices of one branch, between an embedding and a head that train."""
    return (
        matrix("tok.weight", 1.0, 1e-3, (32, 64), owner="Embedding"),
        matrix("blocks.0.mlp.0.weight", first, first_grad),
        matrix("blocks.0.mlp.2.weight", second, second_grad),
        matrix("head.weight", 0.1, 1e-2, (32, 64)),
    )


def tied(rms: float) -> tuple[Parameter, ...]:
    return (matrix("tok.weight", rms, 1e-3, (85, 128), owner="Embedding", shared_with=("head.weight",)),)


def linears(rms: float) -> tuple[Parameter, ...]:
    return tuple(matrix(f"blocks.{i}.mlp.0.weight", rms, 1e-3) for i in range(6))


def examples(case: SimpleNamespace) -> dict[str, tuple[Evidence, Evidence]]:
    def stream(last: float) -> dict[str, object]:
        return {"stream_rms": case.per_place("stream_rms", 1.0, last)}

    def loss(first: float) -> dict[str, object]:
        return {"loss": series("loss", [first])}

    deep = case.stack(blocks=24)
    return {
        "unscaled-residual-init": (
            Evidence(deep, {"stream_rms": case.per_place("stream_rms", 1.0, 12.0, 48)}),
            Evidence(deep, {"stream_rms": case.per_place("stream_rms", 1.0, 2.7, 48)}),
        ),
        "stream-explodes": (Evidence(case.stack("none"), stream(1e4)), Evidence(case.stack("none"), stream(5.0))),
        "stream-vanishes": (Evidence(case.stack("none"), stream(1e-5)), Evidence(case.stack("none"), stream(0.05))),
        "embedding-scale": (
            Evidence(None, loss(79.4), {"parameters": tied(1.0), "vocab": 85}),
            Evidence(None, loss(4.45), {"parameters": tied(0.09), "vocab": 85}),
        ),
        "large-init": (
            Evidence(None, loss(9.0), {"parameters": linears(0.3), "vocab": 32}),
            Evidence(None, loss(3.6), {"parameters": linears(0.125), "vocab": 32}),
        ),
        "dead-parameters": (
            Evidence(None, {}, {"parameters": block(0.0, 0.0, 0.0, 0.0)}),
            Evidence(None, {}, {"parameters": block(0.1, 0.0, 0.0, 1e-3)}),
        ),
        "initial-loss": (
            Evidence(None, loss(9.0), {"vocab": 32}),
            Evidence(None, loss(4.0), {"vocab": 32}),
        ),
        "norm-nullspace": (
            Evidence(None, {}, {"probes": (Probe("input", 0.0, 0.0),)}),
            Evidence(None, {}, {"probes": (Probe("input", 0.4, 0.0),)}),
        ),
    }
