"""[tool.streamgauge] in pyproject.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamgauge.errors import InputError
from streamgauge.settings import Settings, load_settings

WHOLE = """
[tool.streamgauge]
select = ["W", "i001", "dead-parameters"]
ignore = ["missing-final-norm"]
[tool.streamgauge.thresholds]
W004 = { large = 4 }
token-collapse = { cut = 0.9 }
"""


def put(folder: Path, text: str) -> Path:
    (folder / "pyproject.toml").write_text(text)
    return folder


def test_nearest_file_with_the_table_counts(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    put(tmp_path, WHOLE)
    put(tmp_path / "a", "[project]\nname = 'other'")
    expected = Settings(
        ("W", "i001", "dead-parameters"),
        ("missing-final-norm",),
        {"missing-final-norm": {"large": 4}, "token-collapse": {"cut": 0.9}},
    )
    assert load_settings(inner) == expected
    assert load_settings(put(inner, "[tool.streamgauge]\nignore = ['T']")) == Settings(ignore=("T",))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("tool = [", "broken TOML"),
        ("tool.streamgauge = 3", "write a table"),
        ("[tool.streamgauge]\nselct = ['W']", "tool.streamgauge.selct; did you mean 'select'?"),
        ("[tool.streamgauge]\nselect = 'W'", "tool.streamgauge.select is 'W'"),
        ("[tool.streamgauge]\nignore = [3]", "tool.streamgauge.ignore is [3]"),
        ("[tool.streamgauge]\nignore = ['missing-residul']", "did you mean 'missing-residual'?"),
        ("[tool.streamgauge.thresholds]\nmissing-residul = {}", "did you mean 'missing-residual'?"),
        ("[tool.streamgauge.thresholds]\nW004 = 3", "thresholds.W004 is 3"),
        ("[tool.streamgauge.thresholds]\nW004 = {larg = 3}", "did you mean 'large'?"),
        ("[tool.streamgauge.thresholds]\nW004 = {large = true}", "W004.large is True: give a number"),
        ("[tool.streamgauge.thresholds]\nI007 = {large = 1}", "this rule has none"),
        ("[tool.streamgauge.thresholds]\nW004 = {}\nmissing-final-norm = {}", "set twice"),
    ],
)
def test_a_mistake_is_one_line_with_file_and_key(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(InputError) as caught:
        load_settings(put(tmp_path, text))
    assert str(tmp_path / "pyproject.toml") in str(caught.value)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)
