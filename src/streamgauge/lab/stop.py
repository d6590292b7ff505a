"""Ctrl-C and SIGTERM while arms are trained: heard between two messages of the workers, so that none gets lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Stopped(KeyboardInterrupt):
    """A comparison that was told to stop, and did; the message is one line, `number` the signal."""

    def __init__(self, message: str, number: int = signal.SIGINT) -> None:
        super().__init__(message)
        self.number = number


@contextmanager
def heard(tell: Callable[[int], None]) -> Iterator[None]:
    """Call `tell` with the number of each SIGINT and SIGTERM instead of what they do; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda number, frame: tell(number)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
