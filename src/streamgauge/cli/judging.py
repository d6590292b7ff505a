"""`streamgauge check`."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated, Any

import typer

from streamgauge.cli.flags import Form, rules_of
from streamgauge.errors import InputError

EPILOG = (
    "Examples: `check gpt2` · `check ./config.json` · `check mymodel.py:build` · `check pkg.mod:build` · "
    "`check train.py -- --lr 3e-4`"
)


def check(
    target: Annotated[
        str,
        typer.Argument(
            help="A training script, a preset (gpt2, bert-base, llama-3-8b ...), a transformers config.json or "
            "checkpoint folder (weights are not loaded), module.path:factory, or file.py:factory.",
        ),
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGS]", help="The script's own arguments.", show_default=False)
    ] = None,
    lr: Annotated[float | None, typer.Option(help="Peak learning rate; default: what the schedule will reach.")] = None,
    warmup: Annotated[int | None, typer.Option(help="Optimizer steps of warm-up.")] = None,
    steps: Annotated[int | None, typer.Option(help="Optimizer steps of the run.")] = None,
    clip: Annotated[float | None, typer.Option(help="Largest gradient norm.")] = None,
    precision: Annotated[str | None, typer.Option(help="Autocast dtype: fp32, bf16 or fp16.")] = None,
    budget: Annotated[int, typer.Option(help="Loss evaluations to spend.")] = 60,
    seconds: Annotated[float | None, typer.Option(help="Longest time of the rehearsal.")] = None,
    allow_writes: Annotated[
        bool, typer.Option("--allow-writes", help="Let a script write its checkpoints during the check.")
    ] = False,
    wiring: Annotated[bool, typer.Option("--wiring", help="Only draw the wiring; judge nothing.")] = False,
    select: Annotated[str | None, typer.Option(help="Only these rules: codes, names, family letters.")] = None,
    ignore: Annotated[str | None, typer.Option(help="Leave these rules out.")] = None,
    format: Annotated[Form, typer.Option(help="How to print.")] = Form.text,
    fix: Annotated[bool, typer.Option("--fix", help="Print the Python lines that repair what can be.")] = False,
) -> int:
    """Judge a training before it runs: its wiring, the model at initialization, and a few dozen real steps.

    A script runs unmodified, with its own data and arguments, until its first steps are rehearsed, and is then ended;
    its checkpoints are not written. Any other target is built from its config or factory with fresh weights; nothing
    is downloaded and no remote code runs. Exit code 0: no finding at level error; 1: there is one; 2: the target or a
    flag cannot be used. select, ignore and thresholds of the rules may stand in pyproject.toml, [tool.streamgauge].
    """

    if not target.strip():
        raise InputError("an empty target; give a script, a preset, a config.json, a folder, or module:factory")
    if fix and format is not Form.text:
        raise InputError(f"--fix prints text; leave out --format {format.value}")
    told = {"lr": lr, "warmup": warmup, "steps": steps, "clip": clip, "precision": precision, "seconds": seconds}
    given: dict[str, Any] = {name: value for name, value in told.items() if value is not None}
    rules: dict[str, Any] = rules_of(select, ignore)
    if is_script(target):
        from streamgauge.preflight.script import check_script

        if format is not Form.text:
            given["stdout"] = 2  # standard output holds the document alone
        result = check_script(
            target, arguments or (), budget=budget, allow_writes=allow_writes, wiring_only=wiring, **given, **rules
        )
    else:
        if arguments:
            raise InputError(f"{target} is no script: the arguments {' '.join(arguments)!r} have nobody to go to")
        if given:
            raise InputError(f"--{next(iter(given))}: {target} comes without data and is not trained; give a script")
        from streamgauge.preflight import check_target

        result = check_target(target, **rules)
    _print(result, format, wiring)
    if fix and not wiring:
        from streamgauge.fix import remedy_lines

        print(remedy_lines(result.findings))
    return 0 if wiring else result.exit_code


def is_script(target: str) -> bool:
    """A Python file, named without a factory in it."""
    return target.endswith((".py", ".pyw"))


def _print(result: Any, format: Form, wiring: bool) -> None:
    from streamgauge.reporting import draw, render, show
    from streamgauge.reporting.checks import check_text
    from streamgauge.reporting.from_check import report_of_check
    from streamgauge.reporting.sarif import to_sarif

    if format is Form.json:
        print(result.to_json())
    elif format is Form.sarif:
        print(to_sarif(result))
    elif format is Form.html:
        print(render(report_of_check(result, shlex.join(["streamgauge", *sys.argv[1:]]))))
    else:
        show(draw(result.wiring) if wiring else check_text(result))
