"""Who may import whom (design: the build column and the see column never meet below the lab)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "streamgauge"
BASE = {"vocabulary", "errors", "registry"}
TOP = {"lab", "api", "cli", "settings", "__main__", "__init__"}
ALLOWED = {
    "errors": set(),
    "registry": {"errors"},
    "vocabulary": {"errors"},
    "nn": BASE,
    "wiring": BASE,
    "gauge": BASE | {"wiring"},
    "rules": BASE | {"wiring", "gauge"},
    "fix": BASE | {"wiring", "gauge", "rules"},
    "guard": BASE | {"wiring", "gauge", "rules"},
    "preflight": BASE | {"wiring", "gauge", "rules", "fix"},
    "reporting": BASE | {"wiring", "gauge", "rules", "preflight"},
}
LONGEST = 300


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(path: Path, text: str | None = None) -> set[str]:
    """Rooms of ours that a file imports, anywhere in it (inside functions and TYPE_CHECKING blocks too)."""
    package = ("streamgauge", *path.relative_to(SOURCE).parts[:-1])
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text() if text is None else text)):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            stem = ".".join(base + ([node.module] if node.module else []))
            modules = [stem, *(f"{stem}.{alias.name}" for alias in node.names)] if stem == "streamgauge" else [stem]
        else:
            continue
        rooms |= {m.split(".")[1] for m in modules if m.startswith("streamgauge.")}
    names = {p.name.removesuffix(".py") for p in SOURCE.iterdir()}
    return rooms & names


FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_one_way(path: Path) -> None:
    here = room(path)
    if here in TOP:
        return
    wrong = imported_rooms(path) - ALLOWED[here] - {here}
    assert not wrong, f"{path.relative_to(SOURCE)} imports {sorted(wrong)}; room {here} may import {ALLOWED[here]}"


def test_columns_never_meet() -> None:
    see = {"wiring", "gauge", "rules", "preflight", "reporting", "fix", "guard"}
    assert all("nn" not in ALLOWED[r] for r in see)
    assert not ALLOWED["nn"] & see


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_no_file_outgrows_its_name(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    assert lines <= LONGEST, f"{path.relative_to(SOURCE)} has {lines} lines; split it by family"


def test_the_import_test_sees_what_it_must() -> None:
    """A wrong import in every syntactic form is found, so that this file can fail."""
    forms = [
        "from streamgauge.nn import Decoder",
        "import streamgauge.nn.norms",
        "from streamgauge import nn",
        "def f():\n    from streamgauge.nn.norms import RMSNorm",
        "from ..nn import Decoder",
        "from .. import nn",
    ]
    for form in forms:
        assert "nn" in imported_rooms(SOURCE / "wiring" / "anything.py", form), form
