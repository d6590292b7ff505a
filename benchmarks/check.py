"""Time of `check` by phase, against the bars of 60 s in all and 15 s before the first rehearsal step.

python benchmarks/check.py [--layers 12] [--width 256] [--batch 8] [--tokens 128] [--threads 2] [--budget 60]
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import streamgauge as sg
from streamgauge.preflight import check as check_module
from streamgauge.preflight import phases, rehearsal

SECONDS, FIRST = 60.0, 15.0


def batches(vocab: int, batch: int, tokens: int) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(0)
    while True:
        start = torch.randint(vocab, (batch, 1), generator=generator)
        yield (start + 7 * torch.arange(tokens + 1)) % vocab


def timed(spent: Counter[str], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            spent[name] += time.perf_counter() - began

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
    began = time.perf_counter()
    calls: list[float] = []
    spent: Counter[str] = Counter()

    def loss(batch: Tensor) -> Tensor:
        calls.append(time.perf_counter() - began)
        return F.cross_entropy(net(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())

    for _ in range(3):
        value = loss(next(batches(1000, options.batch, options.tokens)))
        value.backward()
    plain = calls[2] - calls[1]
    optimizer.zero_grad()
    calls.clear()
    phases.read_wiring = timed(spent, "wiring", phases.read_wiring)
    phases.rehearse = timed(spent, "rehearsal", phases.rehearse)
    check_module.probe_phase = timed(spent, "experiments", check_module.probe_phase)
    check_module.examine = timed(spent, "rules", check_module.examine)
    began = time.perf_counter()
    result = sg.check(net, loss, batches(1000, options.batch, options.tokens), optimizer, budget=options.budget)
    total = time.perf_counter() - began
    first = calls[1]  # call 0 stops at the model's door
    taken = result.rehearsal.taken if result.rehearsal else 0
    print(
        f"{options.layers} layers, width {options.width}, {options.batch} x {options.tokens}, {options.threads} threads"
    )
    print(f"forward and backward of the loss alone: {plain:.2f} s")
    for name, seconds in spent.most_common():
        print(f"  {name:12} {seconds:6.2f} s  {seconds / total:5.1%}")
    print(f"  {'the rest':12} {total - sum(spent.values()):6.2f} s")
    print(f"{taken} steps in {result.spent} evaluations; a step {spent['rehearsal'] / max(1, taken):.2f} s")
    print(f"first rehearsal step after {first:.2f} s ({first / FIRST:.2f} of the bar)")
    print(
        f"in all {total:.1f} s ({total / SECONDS:.2f} of the bar); verdict {result.answer}; {rehearsal.SECONDS:.0f} s cap"
    )


if __name__ == "__main__":
    main()
