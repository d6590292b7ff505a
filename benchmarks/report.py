"""Time and size of the report, against the bars of 5 seconds and 10 MB: python benchmarks/report.py [--arms 1 4]."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from streamgauge.reporting import Arm, Data, Report, render
from streamgauge.vocabulary import RUN, Join, Place, Readings, Verdict, Wiring

SECONDS, MEGABYTES = 5.0, 10.0
LAYER_SIGNALS = ("stream_rms", "branch_ratio", "cosine", "cosine_excess", "token_cosine", "grad_rms", "retention")
RUN_SIGNALS = ("loss", "val_loss", "grad_norm", "retention_total", "lr", "step_time", "tokens_per_s")


def synthetic(layers: int, steps: int, arms: int) -> Report:
    """Noise of the right shape: no compression or averaging is helped by structure."""
    rng = np.random.default_rng(0)
    at = np.arange(steps)
    places = tuple(Place(i, f"blocks.{i}", "attention") for i in range(layers))

    def arm(name: str) -> Arm:
        readings = {
            signal: Readings(signal, np.exp(rng.standard_normal((steps, layers))), at, places, "1")
            for signal in LAYER_SIGNALS
        }
        for signal in RUN_SIGNALS:
            readings[signal] = Readings(signal, np.exp(0.1 * rng.standard_normal((steps, 1))), at, (RUN,), "1")
        wiring = Wiring(tuple(Join(i, f"blocks.{i}", "pre", "layernorm", 1e-5) for i in range(layers)), final_norm=True)
        return Arm(name, Verdict("trains", "synthetic"), "trains", wiring, readings)

    return Report("synthetic", tuple(arm(f"arm {i}") for i in range(arms)), data=Data(unigram_entropy=3.2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=100)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--arms", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--out", type=Path, help="write the last page here")
    options = parser.parse_args()
    page = ""
    for arms in options.arms:
        report = synthetic(options.layers, options.steps, arms)
        start = time.perf_counter()
        page = render(report)
        seconds, megabytes = time.perf_counter() - start, len(page.encode()) / 1e6
        print(
            f"{options.layers} layers x {options.steps} steps, {arms} arm(s): {seconds:.2f} s "
            f"({seconds / SECONDS:.2f} of the bar), {megabytes:.2f} MB ({megabytes / MEGABYTES:.2f} of the bar)"
        )
    if options.out:
        options.out.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
