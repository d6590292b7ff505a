from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from streamgauge.preflight.script import session as sessions
from streamgauge.preflight.script.job import Job, Seen
from streamgauge.preflight.script.stop import Stopped

Rehearse = Callable[..., Seen]


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm1(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.ffn(self.norm2(x))


class Net(nn.Module):
    """Pre-LN on ids below 16: four joins."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.tok = nn.Embedding(16, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 16)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tok(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    return Net()


@pytest.fixture
def ids() -> Callable[[], Tensor]:
    generator = torch.Generator().manual_seed(0)
    return lambda: torch.randint(0, 16, (4, 6), generator=generator)


@pytest.fixture
def rehearse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rehearse]:
    """rehearse(loop, **job): run a loop under the hooks in this process; what was seen."""
    monkeypatch.setattr(sessions, "close_the_door", lambda patches: None)
    begun: list[sessions.Session] = []

    def run(loop: Callable[[], Any], **job: Any) -> Seen:
        answer = tmp_path / f"answer{len(begun)}"
        order = Job("train.py", (), **{"mode": "check", "answer": str(answer), **job})
        session = sessions.Session(order, _at_once)
        begun.append(session)
        error: BaseException | None = None
        try:
            loop()
        except (Stopped, Exception, KeyboardInterrupt, SystemExit) as raised:
            error = raised
        session.answer(error)
        session.let_go()
        seen = pickle.loads(answer.read_bytes())
        assert isinstance(seen, Seen)
        return seen

    yield run
    for session in begun:
        session.answer(None)


def _at_once(name: str, call: Callable[[ModuleType], None]) -> None:
    """In a test, foreign libraries are left alone."""
