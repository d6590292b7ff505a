"""`streamgauge check SCRIPT` on a 12-layer model, against the bars of 60 s in all and 15 s before the first step.

python benchmarks/check_script.py [--layers 12] [--width 256] [--batch 8] [--tokens 128] [--threads 2]

Times are shares of the whole check, and of the same script's own first steps without hooks, both run here.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SECONDS, FIRST = 60.0, 15.0
SCRIPT = """
import sys, time
marks = open("marks", "a")
def mark(what):
    print(what, time.time(), file=marks, flush=True)
mark("begin")
import torch
import torch.nn.functional as F
from torch import nn
mark("torch")
layers, width, batch, tokens, threads, steps = map(int, sys.argv[1:])
torch.set_num_threads(threads)
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(1000, width), nn.Embedding(tokens, width)
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, 0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, 1000)
    def forward(self, ids):
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        return self.head(self.blocks(x, mask, is_causal=True))
net = Net()
optimizer = torch.optim.AdamW(net.parameters(), 3e-4)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: min(1.0, (t + 1) / 200))
mark("model")
for step in range(steps):
    ids = (torch.randint(1000, (batch, 1)) + 7 * torch.arange(tokens + 1)) % 1000
    loss = F.cross_entropy(net(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    if step == 0:
        mark("first")
    optimizer.step()
    scheduler.step()
    mark("step")
"""


def timed(command: list[str], folder: Path) -> tuple[float, dict[str, float], int, str]:
    """(Seconds in all, seconds from the start to each first mark, steps, output)."""
    (folder / "marks").unlink(missing_ok=True)
    began = time.time()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=os.environ)
    total = time.time() - began
    marks = [line.split() for line in (folder / "marks").read_text().splitlines()]
    first: dict[str, float] = {}
    for what, when in marks:
        first.setdefault(what, float(when) - began)
        first[f"last {what}"] = float(when) - began
    return total, first, sum(what == "step" for what, _ in marks), done.stdout + done.stderr


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in {"layers": 12, "width": 256, "batch": 8, "tokens": 128, "threads": 2}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    sizes = [str(value) for value in vars(options).values()]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "train.py").write_text(SCRIPT)
        check = [sys.executable, "-m", "streamgauge.cli", "check", "train.py", "--", *sizes, "100000"]
        total, at, steps, output = timed(check, folder)
        bare, own, own_steps, _ = timed([sys.executable, "train.py", *sizes, str(max(2, steps))], folder)
    print(output)
    per_step = (own["last step"] - own["step"]) / max(1, own_steps - 1)
    print(f"check: {total:.1f} s, {total / SECONDS:.0%} of the bar; {steps + 1} optimizer steps")
    print(f"before the first update: {at['last first']:.1f} s, {at['last first'] / FIRST:.0%} of the bar")
    ends = [("start", "begin"), ("import of torch and hooks", "torch"), ("model", "model"), ("first pass", "first")]
    before = 0.0
    for name, mark in ends:
        print(f"  {name}: {(at[mark] - before) / total:.1%} of the check")
        before = at[mark]
    print(f"  experiments and first update: {(at['step'] - before) / total:.1%}")
    print(f"  rehearsal: {(at['last step'] - at['step']) / total:.1%}")
    print(f"  verdict: {(total - at['last step']) / total:.1%}")
    print(f"a rehearsal step takes {(at['last step'] - at['step']) / max(1, steps - 1) / per_step:.2f} bare steps")
    print(f"the check takes {total / bare:.2f} times as long as the script alone with as many steps")
    sys.exit(int(total > SECONDS or at["last first"] > FIRST))


if __name__ == "__main__":
    main()
