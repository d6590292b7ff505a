"""Canned reports: plausible values of a four-way comparison, made without any training."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from streamgauge.reporting import Arm, Data, Report
from streamgauge.vocabulary import (
    RUN,
    Finding,
    Join,
    Norm,
    NotAssessed,
    Place,
    Quantity,
    Readings,
    Verdict,
    Wiring,
)

ENTROPY = 3.17
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "browser: needs Chromium; left out without one, except where CI=true")


def browser() -> str | None:
    """The path of a Chromium, from $CHROMIUM or the search path."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without a Chromium its tests are deselected on a user's machine; in CI they stay, and fail."""
    if browser() or os.environ.get("CI") == "true":
        return
    left_out = [item for item in items if item.get_closest_marker("browser")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("browser")]


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser that looks at the report."""
    path = browser()
    if path is None:
        pytest.fail("no Chromium: install one (apt-get install chromium) or set CHROMIUM to its path")
    return path


def wiring(placement: str, layers: int) -> Wiring:
    """A decoder of `layers` blocks, attention then ffn."""
    norm = None if placement == "none" else "layernorm"
    joins = tuple(
        Join(i, f"blocks.{i // 2}.{('attention', 'ffn')[i % 2]}", placement, norm, 1e-5 if norm else None, kind=kind)
        for i in range(2 * layers)
        for kind in [("attention", "ffn")[i % 2]]
    )
    norms = (Norm("norm", "layernorm", 1e-5, 64, role="final"),) if placement == "pre" else ()
    if placement == "none":
        return Wiring(unjoined=joins)
    return Wiring(joins=joins, final_norm=placement == "pre", norms=norms)


def readings(layers: int, steps: int, every: int, kind: str) -> dict[str, Readings]:
    """Every signal of a run that trains ("pre", "b2t"), vanishes ("none") or is slow ("post")."""
    rng = np.random.default_rng(sum(map(ord, kind)))
    places = tuple(
        Place(i, f"blocks.{i // 2}.{('attention', 'ffn')[i % 2]}", ("attention", "ffn")[i % 2])
        for i in range(2 * layers)
    )
    at = np.arange(0, steps, every, dtype=np.int64)
    time = (at / max(steps, 1))[:, None]
    depth = (np.arange(2 * layers) / (2 * layers))[None]
    noise = np.exp(0.08 * rng.standard_normal((len(at), 2 * layers)))
    shrink = {"none": 0.62, "post": 0.985, "pre": 1.0, "b2t": 1.0}[kind]
    kept = np.full((len(at), 2 * layers), shrink) * np.exp(0.02 * rng.standard_normal((len(at), 2 * layers)))
    kept[:, 0] = np.nan
    grad = 1e-3 * shrink ** (2 * layers * (1 - depth)) * noise * (1 - 0.5 * time)
    rms = np.ones_like(depth) if kind in ("none", "post") else 0.5 + 2.5 * depth * (0.4 + time)
    ratio = 1 / (2 * layers * depth + 1) * (0.5 + time) * noise
    token = {"none": 1 - np.exp(-9 * depth), "post": 0.2 + 0.55 * depth, "pre": 0.1 + 0.3 * depth}
    tables = {
        "stream_rms": (rms * noise, "1"),
        "branch_ratio": (ratio, "1"),
        "cosine_excess": (0.06 * (1 - 2 * time) * (depth - 0.4) + 0.01 * (noise - 1), "1"),
        "token_cosine": (np.clip(token.get(kind, token["pre"]) * (1 + 0.1 * time) * noise**0.2, -1, 1), "1"),
        "grad_rms": (grad, "1"),
        "retention": (kept, "1"),
    }
    found = {
        name: Readings(name, np.broadcast_to(values, (len(at), 2 * layers)).astype(np.float64), at, places, unit)
        for name, (values, unit) in tables.items()
    }
    every_step = np.arange(steps, dtype=np.int64)
    fall = {"none": 0.0, "post": 0.55, "pre": 1.25, "b2t": 1.3}[kind]
    loss = ENTROPY + 2.3 * np.exp(-every_step / (0.03 * steps + 1)) - fall * (1 - np.exp(-4 * every_step / steps))
    noisy = loss + 0.06 * rng.standard_normal(steps)
    clean = loss[at] + 0.03
    run = {
        "loss": (every_step, noisy, "nat"),
        "val_loss": (at, clean, "nat"),
        "grad_norm": (every_step, np.exp(0.3 * rng.standard_normal(steps)) * (0.02 if kind == "none" else 0.6), "1"),
        "lr": (every_step, 3e-3 * np.minimum(1, (every_step + 1) / (0.1 * steps + 1)), "1"),
        "retention_total": (at, np.full(len(at), shrink ** (2 * layers)), "1"),
        "tokens_per_s": (every_step, 9000 + 300 * rng.standard_normal(steps), "token/s"),
    }
    for name, (when, values, unit) in run.items():
        found[name] = Readings(name, np.asarray(values, dtype=np.float64)[:, None], when, (RUN,), unit)
    return found


COLLAPSE = Finding(
    "I204",
    "token-collapse",
    "error",
    "blocks.20 to blocks.23",
    "All tokens carry the same vector from block 20 on.",
    {"token_cosine": Quantity(0.9998), "threshold": Quantity(0.95)},
    "Without a skip the attention average is applied again and again.",
    "Restore the residual connection.",
    "Dong et al. 2021, arXiv:2103.03404",
)
PLATEAU = Finding(
    "D303",
    "unigram-plateau",
    "warning",
    "run",
    "The loss stays at the unigram entropy: the model knows how often each token occurs and nothing else.",
    {"loss": Quantity(3.18, "nat"), "unigram_entropy": Quantity(ENTROPY, "nat"), "steps": Quantity(400, "steps")},
)
MISSING = Finding(
    "W101",
    "missing-residual",
    "error",
    "blocks.0 to blocks.23",
    "48 of 48 sublayers replace the stream instead of adding to it.",
    {"sublayers without a residual": Quantity(48), "gradient retention": Quantity(1.1e-10)},
    "Each sublayer multiplies the gradient by its own Jacobian, with no identity path beside it.",
    "Add the skip: x = x + f(norm(x)), for example scheme='pre'.",
    "He et al. 2016, arXiv:1512.03385",
    (COLLAPSE, PLATEAU),
)
SHALLOW = Finding(
    "O401",
    "post-norm-without-warmup",
    "info",
    "run",
    "Post-LN starts at the full learning rate.",
    {"warm-up": Quantity(0, "steps")},
    "",
    "Warm up over the first 4,000 steps, or use Pre-LN.",
    "Xiong et al. 2020, arXiv:2002.04745",
)


def comparison(layers: int = 24, steps: int = 400, every: int = 20) -> Report:
    """No residual, Post-LN, Pre-LN and B2T on the same data."""
    unsaid = (NotAssessed("P501", "eps-underflow", "the run is in float32"),)
    verdicts = {
        "none": Verdict("will not train", "no gradient reaches the first layers: retention 1e-10 over 48 sublayers"),
        "post": Verdict("at risk", "learns slowly at this learning rate", probability=0.55, max_lr=1e-3),
        "pre": Verdict("trains", "loss falls steadily, gradient of equal size at every depth", 0.99, 8e-3),
        "b2t": Verdict("trains", "loss falls steadily", 0.97, 6e-3, (4e-3, 9e-3)),
    }
    outcomes = {"none": "stalled", "post": "slow", "pre": "trains", "b2t": "trains"}
    found = {"none": (MISSING,), "post": (SHALLOW,)}
    shared = {"depth": layers, "width": 64, "heads": 4, "lr": 3e-3, "steps": steps, "seed": 0, "data_seed": 0}
    arms = tuple(
        Arm(
            name=kind,
            verdict=verdicts[kind],
            outcome=outcomes[kind],
            wiring=wiring("post" if kind == "b2t" else kind, layers),
            readings=readings(layers, steps, every, kind),
            findings=found.get(kind, ()),
            not_assessed=unsaid,
            config={"scheme": kind, **shared},
            facts={"parameters": 1_234_567, "seconds": 61.2, "devices": ["cpu"], "betas": [0.9, 0.95]},
        )
        for kind in ("none", "post", "pre", "b2t")
    )
    return Report(
        title="first light: 24 layers, four ways",
        arms=arms,
        command="streamgauge compare --schemes none,post,pre,b2t --depths 24 --seeds 0 --out runs/first-light",
        versions={"streamgauge": "0.1.0", "torch": "2.13.0", "python": "3.11.2"},
        data=Data("Python standard library as bytes, 10.4 MB train, 0.6 MB validation", "9f2c" * 16, ENTROPY),
        made_at="2026-01-01T12:00:00+00:00",
    )


@pytest.fixture(scope="session")
def make() -> Callable[..., Report]:
    """The maker of canned comparisons."""
    return comparison


@pytest.fixture(scope="session")
def canned() -> Report:
    """A small canned comparison of four arms."""
    return comparison(layers=4, steps=60, every=5)


@pytest.fixture(scope="session")
def alone(canned: Report) -> Callable[..., Report]:
    """A report of one arm, the canned Pre-LN one with the given fields replaced."""

    def build(**changes: object) -> Report:
        return replace(canned, arms=(replace(canned.arms[2], **changes),))

    return build
