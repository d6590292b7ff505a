"""Healthy runs, and the quantiles of what the rules hold against their thresholds.

    python -m streamgauge.lab.calibrate --out runs.jsonl [--schemes pre b2t --depths 4 12 --lrs 1e-3 --seeds 0]
    python -m streamgauge.lab.calibrate --out runs.jsonl --table

One line of JSON per run; a run that is there already is not made again, so that a grid can grow or go on after a kill.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from streamgauge.gauge import StoredRun, watch
from streamgauge.lab.config import Config
from streamgauge.lab.corpus import Corpus, standard_library
from streamgauge.lab.loop import build, loss_on, seed_all
from streamgauge.nn import SCHEMES
from streamgauge.preflight import gather
from streamgauge.rules import Evidence, examine
from streamgauge.rules.optimizer.adam import burst_ratios
from streamgauge.rules.optimizer.motion import median_ratio
from streamgauge.rules.optimizer.spikes import spikes
from streamgauge.rules.optimizer.trend import trend
from streamgauge.rules.precision.eps import shares
from streamgauge.rules.rule import RULES

DEPTHS = (4, 8, 12, 24, 48, 96)
RATES = (1e-3, 3e-4)
DEEPEST_POST, FASTEST_POST = 12, 1e-3
"""Post-LN without a remedy is no healthy run beyond: 12 blocks at 3e-3 without warm-up stay at token frequencies."""

RESTS_ON: dict[str, str] = {
    "update_to_weight": "lr-too-low, lr-too-high",
    "grad_rms_over_eps": "adam-eps",
    "loss_end_minus_first": "lr-too-high",
    "loss_peak_minus_first": "lr-too-high",
    "loss_given_back": "lr-too-high",
    "grad_norm_end_over_median": "lr-too-high",
    "beta2_ratio": "stale-beta2",
    "spikes": "loss-spike, stale-beta2",
    "token_cosine": "post-norm-without-warmup",
    "cosine_excess": "layer-collapse",
    "stream_spread": "massive-activations",
    "stream_peak": "half-overflow, half-norm-statistics",
    "eps_share": "eps-dominates",
    "alarms": "all",
}
"""Quantity -> the rules whose thresholds rest on it."""


def run(scheme: str, depth: int, lr: float, seed: int, steps: int, corpus: Corpus) -> dict[str, Any]:
    """Train one small model with AdamW at a constant rate, unclipped, and measure everything in `RESTS_ON`."""
    seed_all(seed)
    net = build(Config(scheme=scheme, depth=depth, width=32, heads=4, context=32))
    optimizer = torch.optim.AdamW(net.parameters(), lr=lr)
    with watch(net, optimizer, every=max(1, steps // 6)) as gauge:
        for step in range(steps):
            loss = loss_on(net, corpus.batch(seed, step, 8, 32))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            if not step:
                parameters, setup = gather.parameters(net), gather.setup(optimizer, net)
            gauge.step(loss)
            optimizer.step()
        stored = gauge.readings_so_far()
        facts = {name: value for name, value in corpus.facts().items() if name in ("vocab", "unigram_entropy")}
        evidence = Evidence.of_run(stored, **facts, parameters=parameters, setup=setup, phase="run")
        found = [f for f in examine(evidence).findings if f.severity != "info"]
        measured = _measured(stored, _grads_over_eps(net), median_ratio(parameters, setup))
    return {
        "scheme": scheme,
        "depth": depth,
        "lr": lr,
        "seed": seed,
        "steps": steps,
        **measured,
        "alarms": len(found),
        "alarmed": [f.name for f in found],
    }


def _grads_over_eps(net: nn.Module) -> float:
    """The median over the matrices of rms(gradient) / 1e-8, at the last step."""
    gradients: list[Tensor] = [p.grad for p in net.parameters() if p.grad is not None and p.dim() > 1]
    return float(np.median([float(g.square().mean().sqrt()) for g in gradients])) / 1e-8


def _measured(stored: StoredRun, over_eps: float, ratio: float | None) -> dict[str, float]:
    loss, norms = stored.readings("loss"), stored.readings("grad_norm").values[:, 0]
    seen = trend(loss)
    assert seen is not None
    assert stored.wiring is not None
    given_back = (seen.end - seen.lowest) / max(seen.initial - seen.lowest, 0.5)
    part = shares(list(stored.wiring.joins), stored.readings("stream_rms"), pretrained=False)

    def highest(signal: str) -> float:
        return float(np.nanmax(stored.readings(signal).values))

    return {
        "update_to_weight": ratio if ratio is not None else math.nan,
        "grad_rms_over_eps": over_eps,
        "loss_first": seen.initial,
        "loss_end": seen.end,
        "loss_end_minus_first": seen.end - seen.initial,
        "loss_peak_minus_first": seen.peak - seen.initial,
        "loss_given_back": given_back,
        "grad_norm_end_over_median": float(norms[-1] / np.median(norms[: max(3, len(norms) // 2)])),
        "beta2_ratio": float(burst_ratios(norms, 0.999).max()),
        "spikes": float(len(spikes(loss))),
        "token_cosine": float(np.nanmax(stored.readings("token_cosine").values[:, -1])),
        "cosine_excess": highest("cosine_excess"),
        "stream_spread": highest("stream_spread"),
        "stream_peak": highest("stream_peak"),
        "eps_share": max(part.values(), default=0.0),
    }


def grid(
    schemes: Iterable[str], depths: Iterable[int], lrs: Iterable[float], seeds: Iterable[int]
) -> list[tuple[str, int, float, int]]:
    """All combinations that are healthy by what is known of them."""
    every = itertools.product(schemes, depths, lrs, seeds)
    return [(s, d, lr, seed) for s, d, lr, seed in every if s != "post" or (d <= DEEPEST_POST and lr <= FASTEST_POST)]


def load(path: Path) -> list[dict[str, Any]]:
    """The runs made so far; a line that a kill cut short is left out."""
    if not path.exists():
        return []
    rows = []
    for line in path.read_text().splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: least, 1st, 50th and 99th percentile and largest of each quantity, and the rules that rest on it."""
    lines = [
        "| quantity | least | 1 % | median | 99 % | largest | rules |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, rules in RESTS_ON.items():
        values = np.array([row[name] for row in rows if row.get(name) is not None], dtype=float)
        values = values[np.isfinite(values)]
        if len(values):
            shown = " | ".join(f"{v:.3g}" for v in np.quantile(values, (0, 0.01, 0.5, 0.99, 1)))
            lines.append(f"| {name} | {shown} | {rules} |")
    return "\n".join(lines)


def calibrate(
    out: Path, wanted: Sequence[tuple[str, int, float, int]], steps: int, corpus: Corpus | None = None
) -> list[dict[str, Any]]:
    """Make the runs that `out` does not hold yet, one line each; all of its rows."""
    rows = load(out)
    made = {(r["scheme"], r["depth"], r["lr"], r["seed"], r["steps"]) for r in rows}
    for scheme, depth, lr, seed in wanted:
        if (scheme, depth, lr, seed, steps) in made:
            continue
        row = run(scheme, depth, lr, seed, steps, corpus or standard_library())
        cut = out.exists() and not out.read_text().endswith("\n")  # what a kill left must not swallow this row
        with out.open("a") as file:
            file.write("\n" * cut + json.dumps(row) + "\n")
        rows.append(row)
        print(f"{scheme} {depth} {lr:g} seed {seed}: {row['loss_end']:.3f} nats, alarms {row['alarmed']}", flush=True)
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m streamgauge.lab.calibrate", description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--schemes", nargs="+", default=[name for name in SCHEMES if name != "none"])
    parser.add_argument("--depths", nargs="+", type=int, default=list(DEPTHS))
    parser.add_argument("--lrs", nargs="+", type=float, default=list(RATES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--table", action="store_true", help="print the quantiles of what is there, train nothing")
    given = parser.parse_args(arguments)
    wanted = [] if given.table else grid(given.schemes, given.depths, given.lrs, given.seeds)
    rows = calibrate(given.out, wanted, given.steps)
    print(f"{len(rows)} runs, {len(RULES)} rules, torch {torch.__version__}, Python {platform.python_version()}")
    print(table(rows))


if __name__ == "__main__":
    main(sys.argv[1:])
