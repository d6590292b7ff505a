"""A comparison in one table, from stored values alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from streamgauge.errors import InputError
from streamgauge.gauge import load_run
from streamgauge.gauge.stored import StoredRun
from streamgauge.lab.record import Record, Status


@dataclass(frozen=True)
class Row:
    """One arm; NaN where nothing was measured.

    val_loss, unigram_entropy   nats per byte: the last validation loss, and what knowing byte frequencies alone gives
    retention                   gradient rms at the first join over that at the last, at the last sampled step
    token_cosine                mean cosine between the tokens at the last join, at the last sampled step
    tokens_per_s                median over the steps
    seconds                     CPU time of the training
    note                        why the arm failed or stopped early
    """

    arm: str
    status: Status
    steps: int = 0
    val_loss: float = math.nan
    unigram_entropy: float = math.nan
    retention: float = math.nan
    token_cosine: float = math.nan
    tokens_per_s: float = math.nan
    seconds: float = math.nan
    note: str = ""


def summary(folder: Path | str) -> list[Row]:
    """One row per arm, in the order of the comparison; InputError where `folder` holds none."""
    record = Record.load(folder)
    rows = []
    for name, arm in record.arms.items():
        seconds = math.nan if arm.seconds is None else arm.seconds
        try:
            run = load_run(record.run(name))
        except InputError:
            rows.append(Row(name, arm.status, note=arm.note))
            continue
        status = "interrupted" if arm.status == "running" and run.status == "interrupted" else arm.status
        steps = run.readings("loss").steps
        rows.append(
            Row(
                name,
                status,
                int(steps[-1]) + 1 if len(steps) else 0,
                _last(run, "val_loss"),
                float(run.facts.get("unigram_entropy", math.nan)),
                _last(run, "retention_total"),
                _last(run, "token_cosine"),
                _median(run, "tokens_per_s"),
                seconds,
                arm.note,
            )
        )
    return rows


def _last(run: StoredRun, signal: str) -> float:
    """The value at the last step that has one, at the last place."""
    values = run.readings(signal).values
    return float(values[-1, -1]) if values.size else math.nan


def _median(run: StoredRun, signal: str) -> float:
    values = run.readings(signal).values
    return float(np.nanmedian(values)) if np.isfinite(values).any() else math.nan
