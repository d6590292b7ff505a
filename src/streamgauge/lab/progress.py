"""How a comparison under way is shown: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

LINES_PER_ARM = 10


class Display:
    """One row per arm: bar, step, loss, tokens per second, time left."""

    def __init__(self, arms: Iterable[str], steps: int, shown: bool = True, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, quiet=not shown)
        self.steps = steps
        self.live = self.console.is_terminal and shown
        self.began: dict[str, float] = {}
        self.bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}", markup=False),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.live,
        )
        self.rows: dict[str, TaskID] = {
            arm: self.bars.add_task(arm, total=steps, start=False, state="waiting") for arm in arms
        }

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.bars.stop()

    def start(self, arm: str) -> None:
        self.bars.update(self.rows[arm], state="starting")

    def update(self, arm: str, message: dict[str, Any]) -> None:
        """A message of a worker: {"step": steps done, "loss": nats, "tokens_per_s": ...}."""
        done, rate = message["step"], message["tokens_per_s"]
        if arm not in self.began:  # the clock starts with the first step: loading torch says nothing about the rest
            self.began[arm] = time.monotonic()
            self.bars.start_task(self.rows[arm])
        state = f"loss {message['loss']:.3f}  {rate:,.0f} tokens/s"
        self.bars.update(self.rows[arm], completed=done, state=state)
        if not self.live and done % max(1, self.steps // LINES_PER_ARM) == 0:
            left = (time.monotonic() - self.began[arm]) / max(1, done - 1) * (self.steps - done)
            self.say(f"{arm}: step {done}/{self.steps}  {state}  {left:.0f} s left")

    def end(self, arm: str, state: str) -> None:
        self.bars.stop_task(self.rows[arm])
        self.bars.update(self.rows[arm], state=state)
        if not self.live:
            self.say(f"{arm}: {state}")

    def say(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)
