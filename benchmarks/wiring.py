"""Time and memory of reading a wiring, against the bars of the design.

    python benchmarks/wiring.py [--quick]

Bars: a Llama-3.1-405B config (126 layers) from the meta device in at most 10 s and 2 GB; a 1,000-layer model in at
most 60 s, time linear in layers; under 0.5 s beyond its own forward pass for 12 layers; all gradeable cases of
tests/cases/wiring_cases.py exact. Prints one line for each with the bar, and leaves with 1 where one is missed. Times
are seconds of one processor, so that other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from streamgauge.wiring import load_model, read_wiring

ROOT = Path(__file__).resolve().parents[1]


class Block(nn.Module):
    """Pre-LN attention and feed-forward on the meta device or real tensors."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out, self.up, self.down = (nn.Linear(d, k * d) for k in (3, 1, 4, 1))
        self.down = nn.Linear(4 * d, d)

    def forward(self, x: Tensor) -> Tensor:
        b, n, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, n, 3, 4, d // 4).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))


def stack(layers: int, d: int = 64) -> nn.Module:
    return nn.Sequential(nn.Embedding(64, d), *(Block(d) for _ in range(layers)), nn.LayerNorm(d)).eval()


def ids(n: int = 16) -> Tensor:
    return torch.arange(2 * n).reshape(2, n) % 64


def timed(run: Any) -> tuple[float, Any]:
    start = time.process_time()
    value = run()
    return time.process_time() - start, value


def large() -> None:
    """Run in a process of its own, so that its peak memory is that of this reading."""
    import transformers  # noqa: F401  (importing it is not reading)

    built, source = timed(lambda: load_model("llama-3-405b"))
    read, wiring = timed(lambda: read_wiring(source.model))
    assert wiring.placements == {"pre": 252}, wiring
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{built} {read} {peak}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="without the 1,000-layer model and the cases")
    parser.add_argument("--large", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.large:
        large()
        return 0
    torch.set_num_threads(1)
    missed = 0

    def report(what: str, value: float, unit: str, bar: float) -> None:
        nonlocal missed
        missed += value > bar
        print(f"{what:58} {value:8.2f} {unit:3} bar {bar:g}{'' if value <= bar else '   MISSED'}", flush=True)

    command = [sys.executable, __file__, "--large"]
    built, read, peak = map(float, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    report("405B config, 126 layers: build on meta and read", built + read, "s", 10)
    report("405B config, peak memory of the process", peak, "GB", 2)

    model = stack(12, 128)
    read_wiring(model, ids())
    with torch.no_grad():
        own = min(timed(lambda: model(ids()))[0] for _ in range(5))
    whole = min(timed(lambda: read_wiring(model, ids()))[0] for _ in range(5))
    report("12 layers: reading beyond its own forward pass", whole - own, "s", 0.5)

    sizes = (60, 120, 240) if options.quick else (125, 250, 500, 1000)
    seconds = []
    for layers in sizes:
        model = stack(layers)
        took, wiring = timed(lambda model=model: read_wiring(model, ids()))
        assert wiring.placements == {"pre": 2 * layers}, wiring
        seconds.append(took)
    report(f"{sizes[-1]} layers", seconds[-1], "s", 60)
    growth = (seconds[-1] / seconds[0]) / (sizes[-1] / sizes[0])
    report(f"time per layer at {sizes[-1]} against {sizes[0]} layers", growth, "x", 1.5)

    if not options.quick:
        tests = [sys.executable, "-m", "pytest", "-q", str(ROOT / "tests/wiring/test_cases.py")]
        report("cases that are not exact", subprocess.run(tests, cwd=ROOT, capture_output=True).returncode, "", 0)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
