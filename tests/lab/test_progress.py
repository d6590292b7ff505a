from __future__ import annotations

import io

from rich.console import Console

from streamgauge.lab.progress import Display


def shown(terminal: bool, *, visible: bool = True) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=100, quiet=not visible)
    with Display(["pre", "none"], steps=40, shown=visible, console=console) as display:
        display.start("pre")
        for step in range(1, 41):
            display.update("pre", {"step": step, "loss": 5.0 - step / 16, "tokens_per_s": 1234.5})
        display.end("pre", "finished in 3 s of CPU time")
        display.start("none")
        display.end("none", "failed: [oops]")
    return out.getvalue()


def test_lines_come_ten_times_per_arm_where_there_is_no_terminal() -> None:
    lines = shown(terminal=False).splitlines()
    assert len(lines) == 12
    assert lines[0] == "pre: step 4/40  loss 4.750  1,234 tokens/s  0 s left"
    assert lines[9] == "pre: step 40/40  loss 2.500  1,234 tokens/s  0 s left"
    assert lines[10:] == ["pre: finished in 3 s of CPU time", "none: failed: [oops]"]


def test_terminal_shows_one_row_per_arm() -> None:
    lines = shown(terminal=True).splitlines()
    pre = [line for line in lines if "pre " in line][-1]
    none = [line for line in lines if "none " in line][-1]
    assert "40/40" in pre
    assert "finished in 3 s" in pre
    assert " 0/40" in none
    assert "failed: [oops]" in none


def test_nothing_is_shown_when_not_wanted() -> None:
    assert shown(terminal=False, visible=False) == ""
