"""The `streamgauge` command: reads flags, calls the public verbs, prints. Exit codes: 0, 1 a finding is an error, 2."""

from __future__ import annotations

import io
import signal
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from streamgauge import __version__
from streamgauge.cli import comparing, judging, running
from streamgauge.cli.texts import explain, report, schemes
from streamgauge.errors import InputError, closest


class _StopError(Exception):
    """Ctrl-C inside a command: typer would turn KeyboardInterrupt into an exit without a word."""


class _Group(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            raise _StopError(str(stop), getattr(stop, "number", signal.SIGINT)) from None


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Choose, check, watch and repair the residual stream and the normalization of deep transformers.",
    epilog="Start with `streamgauge check gpt2`, or `streamgauge compare --preset first-light --out runs/first-light`.",
)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False) -> None:
    if version:
        print(f"streamgauge {__version__}")
        raise typer.Exit


check = app.command(epilog=judging.EPILOG)(judging.check)
run = app.command(epilog=running.EPILOG)(running.run)
compare = app.command(epilog=comparing.EPILOG)(comparing.compare)
app.command()(report)
app.command()(explain)
app.command()(schemes)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; every error of the user's is one line on standard error and exit code 2."""
    for stream in (sys.stdout, sys.stderr):  # a name that is not UTF-8 must not end in an error about printing it
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        command = typer.main.get_command(app)
        code = command.main(
            list(sys.argv[1:] if arguments is None else arguments), "streamgauge", standalone_mode=False
        )
        return code if isinstance(code, int) else 0
    except InputError as error:
        return _fail(str(error))
    except _StopError as stop:
        message, number = stop.args
        print(f"streamgauge: {' '.join(message.split()) or 'stopped'}", file=sys.stderr)
        return 128 + int(number)
    except typer.Abort:
        print("streamgauge: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except Exception as error:
        if not hasattr(error, "format_message"):  # the mark of a usage error of the argument parser
            raise
        return _usage(error)


def _usage(error: Any) -> int:
    message = error.format_message().strip()
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.ctx.get_help())
        return 2
    context = getattr(error, "ctx", None)
    group = getattr(context, "command", None)
    if isinstance(group, TyperGroup) and message.startswith("No such command"):
        name = message.split("'")[1]
        message = f"unknown command {name!r}; {closest(name, group.commands)}"
    help = f" (see `{context.command_path} --help`)" if context else ""
    return _fail(message.rstrip(".") + help)


def _fail(message: str) -> int:
    print(f"streamgauge: error: {' '.join(message.split())}", file=sys.stderr)
    return 2
