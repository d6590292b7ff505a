"""`streamgauge check`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from streamgauge.cli.flags import Form, names
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
) -> int:
    """Judge a training before it runs: its wiring, the model at initialization, and a few dozen real steps.

    A script runs unmodified, with its own data and arguments, until its first steps are rehearsed, and is then ended;
    its checkpoints are not written. Any other target is built from its config or factory with fresh weights; nothing
    is downloaded and no remote code runs. Exit code 0: no finding at level error; 1: there is one; 2: the target or a
    flag cannot be used.
    """
    told = {"lr": lr, "warmup": warmup, "steps": steps, "clip": clip, "precision": precision, "seconds": seconds}
    given: dict[str, Any] = {name: value for name, value in told.items() if value is not None}
    rules: dict[str, Any] = {"select": names(select), "ignore": names(ignore)}
    if is_script(target):
        from streamgauge.preflight.script import check_script

        result = check_script(
            target, arguments or (), budget=budget, allow_writes=allow_writes, wiring_only=wiring, **given, **rules
        )
    else:
        if arguments:
            raise InputError(f"{target} is no script: the arguments {' '.join(arguments)!r} have nobody to go to")
        from streamgauge.preflight import check_target

        result = check_target(target, **rules)
    _print(result, format, wiring)
    return 0 if wiring else result.exit_code


def is_script(target: str) -> bool:
    """A Python file, named without a factory in it."""
    return target.endswith((".py", ".pyw"))


def _print(result: Any, format: Form, wiring: bool) -> None:
    from streamgauge.reporting import draw, show
    from streamgauge.reporting.checks import check_text

    if format is Form.json:
        print(result.to_json())
    else:
        show(draw(result.wiring) if wiring else check_text(result))
