"""Time of `check` by phase, against the bars of 60 s in all and 15 s before the first rehearsal step.

python benchmarks/check.py [--layers 12] [--width 256] [--batch 8] [--tokens 128] [--threads 2] [--budget 60]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import streamgauge as sg
from streamgauge.preflight import budget, phases

SECONDS, FIRST = 60.0, 15.0


def batches(vocab: int, batch: int, tokens: int) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(0)
    while True:
        start = torch.randint(vocab, (batch, 1), generator=generator)
        yield (start + 7 * torch.arange(tokens + 1)) % vocab


class Clock:
    """Seconds by phase, and when each was first entered."""

    def __init__(self) -> None:
        self.spent: Counter[str] = Counter()
        self.entered: dict[str, float] = {}

    def on(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            self.entered.setdefault(name, began)
            try:
                return function(*args, **kwargs)
            finally:
                self.spent[name] += time.perf_counter() - began

        return wrapper


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in {"layers": 12, "width": 256, "batch": 8, "tokens": 128, "threads": 2, "budget": 60}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    net = sg.nn.Decoder(
        vocab=1000, depth=options.layers, width=options.width, heads=8, scheme="pre", context=options.tokens
    )
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-4)
    clock = Clock()

    def loss(batch: Tensor) -> Tensor:
        return F.cross_entropy(net(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())

    for _ in range(3):
        began = time.perf_counter()
        loss(next(batches(1000, options.batch, options.tokens))).backward()
        plain = time.perf_counter() - began
    optimizer.zero_grad()
    module: Any = sys.modules["streamgauge.preflight.check"]
    phases.read_wiring = clock.on("wiring", phases.read_wiring)
    phases.rehearse = clock.on("rehearsal", phases.rehearse)
    module.probe_phase = clock.on("experiments", module.probe_phase)
    module.examine = clock.on("rules", module.examine)
    began, work = time.perf_counter(), time.process_time()
    result = sg.check(net, loss, batches(1000, options.batch, options.tokens), optimizer, budget=options.budget)
    total, cpu = time.perf_counter() - began, time.process_time() - work
    first, taken = clock.entered["rehearsal"] - began, result.rehearsal.taken if result.rehearsal else 0
    size = f"{options.layers} layers, width {options.width}, batch {options.batch} x {options.tokens}"
    print(f"{size}, {options.threads} threads")
    print(f"forward and backward of the loss alone: {plain:.2f} s")
    for name, seconds in clock.spent.most_common():
        print(f"  {name:12} {seconds:6.2f} s  {seconds / total:5.1%}")
    print(f"  {'the rest':12} {total - sum(clock.spent.values()):6.2f} s")
    a_step = clock.spent["rehearsal"] / max(1, taken)
    print(
        f"{taken} steps in {result.spent} evaluations, {a_step:.2f} s a step: {a_step / plain:.2f} x loss and backward"
    )
    print(f"first rehearsal step after {first:.2f} s ({first / FIRST:.2f} of the bar)")
    print(f"in all {total:.1f} s ({total / SECONDS:.2f} of the bar), {cpu:.1f} s of all cores; {result.answer}")
    print(f"the rehearsal is capped at {budget.SECONDS:.0f} s")


if __name__ == "__main__":
    main()
