"""The training loop, one screenful: every run of the lab goes through it."""

from __future__ import annotations

import math
import random
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from streamgauge.gauge import Gauge
from streamgauge.lab.config import Config
from streamgauge.lab.corpus import VOCAB, Corpus, load
from streamgauge.lab.schedule import warmup_cosine
from streamgauge.nn import Decoder, recipe

Progress = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Result:
    """How a run ended: steps done, last validation loss in nats, CPU seconds, and why it stopped early ("" if not)."""

    steps: int
    val_loss: float
    seconds: float
    note: str = ""


def build(config: Config) -> Decoder:
    """The model of a run, as the random state of the moment draws it."""
    c = config
    return Decoder(VOCAB, c.depth, c.width, c.heads, scheme=c.scheme, norm=c.norm, init=c.init, context=c.context)


def loss_on(net: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Mean cross-entropy of the next byte, in nats."""
    inputs, targets = batch
    logits: Tensor = net(inputs)
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


@torch.no_grad()
def validate(net: nn.Module, corpus: Corpus, config: Config) -> float:
    """Mean loss over the fixed validation batches, in nats."""
    batches = corpus.validation_batches(config.validation_batches, config.batch, config.context)
    return float(torch.stack([loss_on(net, batch) for batch in batches]).mean())


def seed_all(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def run_facts(config: Config, run: Path | str) -> dict[str, Any]:
    """What a run's record says beyond its config and its data."""
    return {
        "tokens_per_step": config.batch * config.context,
        "threads": torch.get_num_threads(),
        "causal_lm": True,
        "seed": config.seed,
        "command": shlex.join(["python", "-m", "streamgauge.lab.worker", str(run)]),
    }


def train(config: Config, run: Path | str, corpus: Corpus | None = None, progress: Progress | None = None) -> Result:
    """AdamW with warm-up, cosine and clipping on bytes; readings go to `run`/run.sqlite as they are made.

    A loss that is not finite ends the run, with an event in the store. `progress` hears after each step of
    {"step": steps done, "loss", "tokens_per_s"}.
    """
    began = time.process_time()
    seed_all(config.seed)
    corpus = corpus or load(config.data)
    corpus.check(config.context)
    net = build(config)
    groups, _ = recipe(net, lr=config.lr, weight_decay=config.weight_decay)
    optimizer = torch.optim.AdamW(groups, lr=config.lr, betas=(config.beta1, config.beta2), eps=config.eps)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda t: warmup_cosine(t, config.steps, config.warmup_steps, config.min_lr)
    )
    note, val_loss = "", math.nan
    chosen = {"norm": config.norm or net.scheme.norm, "init": net.init.name}  # where config says None: the scheme's own
    facts = corpus.facts() | run_facts(config, run) | chosen
    with Gauge(net, optimizer, run=run, every=config.every, facts=facts, config=config) as gauge:
        Path(run, "config.json").write_text(config.to_json())
        for step in range(config.steps):
            start = time.perf_counter()
            loss = loss_on(net, corpus.batch(config.seed, step, config.batch, config.context))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            norm = nn.utils.clip_grad_norm_(net.parameters(), config.clip or math.inf)
            gauge.step(loss, grad_norm=norm)
            nats = loss.detach().item()
            if not math.isfinite(nats):
                note = f"stopped: the loss is not finite at step {step}"
                gauge.event("stopped", {"why": note, "loss": nats}, step)
                break
            optimizer.step()
            schedule.step()
            rate = config.batch * config.context / (time.perf_counter() - start)
            if (step + 1) % config.validate_every == 0 or step + 1 == config.steps:
                val_loss = validate(net, corpus, config)
                gauge.record("val_loss", val_loss)
            if progress:
                progress({"step": step + 1, "loss": nats, "tokens_per_s": rate})
    return Result(step + 1, val_loss, time.process_time() - began, note)
