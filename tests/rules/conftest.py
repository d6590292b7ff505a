"""The evidence of `examples.py`, shared by the tests of this folder."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

EXAMPLES = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("examples.py"))))


@pytest.fixture
def case() -> SimpleNamespace:
    """The builders and curves of `examples.py`: case.stack(), case.STALLED ..."""
    return EXAMPLES
