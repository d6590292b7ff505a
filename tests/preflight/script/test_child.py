from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from streamgauge.preflight.script import child


@pytest.fixture
def imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[child.AfterImport]:
    (tmp_path / "some_library.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    finder = child.AfterImport()
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    yield finder
    sys.modules.pop("some_library", None)


def test_a_module_is_met_once_when_it_has_been_imported(imports: child.AfterImport) -> None:
    met: list[ModuleType] = []
    imports.add("some_library", met.append)
    assert importlib.util.find_spec("some_library") is not None
    assert met == [], "asking for it is not importing it"
    library = importlib.import_module("some_library")
    assert met == [library]
    assert library.VALUE == 1
    importlib.reload(library)
    assert met == [library]


def test_a_module_that_is_there_is_met_at_once(imports: child.AfterImport) -> None:
    met: list[ModuleType] = []
    imports.add("json", met.append)
    assert met == [sys.modules["json"]]


def test_a_module_that_is_missing_stays_so(imports: child.AfterImport) -> None:
    imports.add("no_such_library", lambda module: None)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_library")


def test_our_frames_are_taken_out_of_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames of this file stand for the script's, those of a function compiled under our path for ours."""
    space: dict[str, object] = {}
    exec(compile("def ours(f): f()", f"{child.PACKAGE}/hook.py", "exec"), space)
    ours = space["ours"]
    assert callable(ours)

    def theirs() -> None:
        try:
            ours(lambda: 1 / 0)
        except ZeroDivisionError as error:
            raise ValueError("mine") from error

    with pytest.raises(ValueError, match="mine") as caught:
        ours(theirs)
    assert "hook.py" in "".join(traceback.format_exception(caught.value))
    child.own(caught.value)
    text = "".join(traceback.format_exception(caught.value))
    assert "hook.py" not in text
    assert "ZeroDivisionError" in text
    assert "in theirs" in text
