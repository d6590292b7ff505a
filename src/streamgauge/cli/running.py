"""`streamgauge run`."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamgauge.cli.flags import path, rules_of
from streamgauge.errors import InputError

if TYPE_CHECKING:
    from streamgauge.api import Run
    from streamgauge.preflight.script import Seen
    from streamgauge.rules import Examination

Rules = dict[str, Any]
"""The arguments of `examine`: select, ignore, thresholds."""

EPILOG = "Examples: `run train.py -- --lr 3e-4` · `run --out runs/mine --every 100 train.py`"


def run(
    script: Annotated[str, typer.Argument(help="A training script; it runs as `python SCRIPT ARGS` would.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGS]", help="The script's own arguments.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            parser=path, metavar="PATH", help="The run's folder; default: runs/SCRIPT-TIME.", show_default=False
        ),
    ] = None,
    every: Annotated[int, typer.Option(help="Steps between two sampled steps of the gauge.")] = 50,
    select: Annotated[str | None, typer.Option(help="Only these rules: codes, names, family letters.")] = None,
    ignore: Annotated[str | None, typer.Option(help="Leave these rules out.")] = None,
) -> int:
    """Watch a whole training, without a change to the script: readings, findings and a report in one folder.

    What the rules find is printed when the script has ended, also after Ctrl-C or an exception. The exit code is the
    script's own; 2 where there is no such script.
    """
    if not script.strip():
        raise InputError("an empty name; give a training script")
    from streamgauge.gauge.schema import FILE
    from streamgauge.preflight.script import Job, launch
    from streamgauge.rules import Evidence, examine

    rules: Rules = rules_of(select, ignore)
    examine(Evidence(), **rules)  # a misspelt rule is said before hours of training
    if every < 1:
        raise InputError(f"--every {every}: give a number of steps of at least 1")
    folder = out if out is not None else Path("runs") / f"{Path(script).stem}-{datetime.now():%Y%m%d-%H%M%S}"
    if (folder / FILE).exists():
        raise InputError(f"{folder} already holds a run; give another folder with --out")
    job = Job(script, tuple(arguments or ()), "run", answer="", folder=str(folder.resolve()), every=every)
    code, seen = launch(job)
    if (folder / FILE).exists():
        _tell(folder, seen, rules)
    else:
        print(f"streamgauge: {script}: no training step was seen; nothing was stored", file=sys.stderr)
    return code


def _tell(folder: Path, seen: Seen | None, rules: Rules) -> None:
    """Judge the stored run, save the findings, write the report, print."""
    from streamgauge import api, gauge
    from streamgauge.reporting import findings_text, show, verdict_line

    stored = api.load(folder)
    assert isinstance(stored, api.Run)
    examination = _examined(stored, seen, rules)
    gauge.write_findings(folder, examination.findings)
    page = api.report(folder)
    show(verdict_line(stored.verdict(), folder.name))
    show(findings_text(examination.findings, examination.not_assessed))
    for note in seen.notes if seen is not None else ():
        print(f"note: {note}")
    print(f"report: {page}")


def _examined(stored: Run, seen: Seen | None, rules: Rules) -> Examination:
    """The rules on the stored readings, with what only the live process knew."""
    from streamgauge.rules import Evidence, examine

    saved = stored.evidence()
    facts: dict[str, Any] = {**saved.facts, **(seen.facts if seen is not None else {}), "phase": "run"}
    return examine(Evidence(saved.wiring, saved.readings, facts), **rules)
