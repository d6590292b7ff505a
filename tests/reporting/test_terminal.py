from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from rich.console import Console

from streamgauge.reporting import Report, arms_table, draw, findings_text, plain, show, verdict_line
from streamgauge.vocabulary import Finding, NotAssessed, Verdict

ESCAPE = "\x1b"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_table_holds_every_arm_and_its_numbers(canned: Report) -> None:
    lines = plain(arms_table(canned)).splitlines()
    assert lines[0].split("  ")[0] == "arm"
    assert [line.split()[0] for line in lines[1:]] == ["none", "post", "pre", "b2t"]
    assert "will not train" in lines[1]
    assert "2 errors, 1 warning" in lines[1]
    assert f"{canned.arms[2].readings['val_loss'].values[-1, 0]:.3f}" in lines[3]
    assert lines[3].endswith("none")


def test_findings_show_everything_with_consequences_indented(canned: Report) -> None:
    text = plain(findings_text(canned.arms[0].findings, canned.arms[0].not_assessed))
    lines = text.splitlines()
    assert lines[0] == "error W101 missing-residual  blocks.0 to blocks.23"
    for part in ("evidence: sublayers without a residual 48", "cause: Each", "fix: Add the skip", "arXiv:1512.03385"):
        assert part in text
    heads = [line for line in lines if line.split()[0] in ("error", "warning")]
    assert [(line.split()[1], len(line) - len(line.lstrip())) for line in heads] == [
        ("W101", 0),
        ("I204", 4),
        ("D303", 4),
    ]
    assert "P501 eps-underflow: the run is in float32" in text


def test_no_findings_says_so() -> None:
    assert plain(findings_text(())) == "no findings\n"
    left = (NotAssessed("P1", "x", "y"),)
    assert plain(findings_text((), left)).splitlines() == ["no findings", "1 not assessed", "  P1 x: y"]


def test_verdict_line() -> None:
    verdict = Verdict("at risk", "too fast", probability=0.5, max_lr=1e-3)
    told = "post  at risk: too fast (probability 0.5, largest learning rate 0.001)\n"
    assert plain(verdict_line(verdict, "post")) == told
    assert plain(verdict_line(Verdict("trains"))) == "trains\n"


def test_no_colour_outside_a_terminal_and_colour_inside(canned: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    pipe, terminal = io.StringIO(), Terminal()
    show(arms_table(canned), pipe)
    show(arms_table(canned), terminal)
    assert ESCAPE not in pipe.getvalue()
    assert ESCAPE in terminal.getvalue()


def test_a_stream_that_takes_ascii_only_gets_ascii(alone: Callable[..., Report]) -> None:
    wiring = alone().arms[0].wiring
    assert wiring is not None
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    show(draw(wiring), stream)
    stream.flush()
    assert b"+-> layernorm(eps 1e-05) -> attention -+" in raw.getvalue()


def test_names_are_neither_markup_nor_control(alone: Callable[..., Report]) -> None:
    name = f"[red]x[/red]{ESCAPE}[2J"
    finding = Finding("X1", "x", "error", name, name, fix=name)
    for view in (arms_table(alone(name=name)), findings_text([finding]), verdict_line(Verdict("trains", name), name)):
        text = plain(view)
        assert "[red]x[/red]\\x1b[2J" in text
        assert ESCAPE not in text
    assert plain("[bold]b") == "[bold]b\n"


def test_the_table_folds_on_a_narrow_terminal(canned: Report) -> None:
    stream = io.StringIO()
    Console(file=stream, width=40).print(arms_table(canned))
    assert max(map(len, stream.getvalue().splitlines())) <= 40
