"""The `streamgauge` command: reads flags, calls the public verbs, prints. Exit codes: 0, 1 a finding is an error, 2."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperGroup

from streamgauge import __version__
from streamgauge.errors import InputError, closest

T = TypeVar("T")

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Choose, check, watch and repair the residual stream and the normalization of deep transformers.",
    epilog="Start with `streamgauge check gpt2`, or `streamgauge compare --preset first-light --out runs/first-light`.",
)


class Form(StrEnum):
    text = "text"
    json = "json"


def _list(text: str | None, kind: Callable[[str], T], flag: str, what: str) -> tuple[T, ...] | None:
    """ "4,12" -> (4, 12); None stays None."""
    if text is None:
        return None
    try:
        return tuple(kind(part.strip()) for part in text.split(",") if part.strip())
    except ValueError:
        raise InputError(f"{flag}: {text!r} is not a comma-separated list of {what}") from None


def _names(text: str | None) -> tuple[str, ...]:
    return _list(text, str, "--select", "names") or ()


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False) -> None:
    if version:
        print(f"streamgauge {__version__}")
        raise typer.Exit


@app.command(epilog="Examples: `check gpt2` · `check ./config.json` · `check mymodel.py:build` · `check pkg.mod:build`")
def check(
    target: Annotated[
        str,
        typer.Argument(
            help="A preset (gpt2, bert-base, llama-3-8b ...), a transformers config.json or checkpoint folder "
            "(weights are not loaded), module.path:factory, or file.py:factory.",
        ),
    ],
    wiring: Annotated[bool, typer.Option("--wiring", help="Only draw the wiring; judge nothing.")] = False,
    select: Annotated[str | None, typer.Option(help="Only these rules: codes, names, family letters.")] = None,
    ignore: Annotated[str | None, typer.Option(help="Leave these rules out.")] = None,
    format: Annotated[Form, typer.Option(help="How to print.")] = Form.text,
) -> int:
    """Judge a model before its run: read its wiring off the graph, measure it at initialization, apply the rules.

    The model is built from its config or factory with fresh weights; nothing is downloaded and no remote code runs.
    Exit code 0: no finding at level error; 1: there is one; 2: the target or a flag cannot be used.
    """
    from streamgauge.preflight import check_target
    from streamgauge.reporting import draw, show
    from streamgauge.reporting.checks import check_text

    result = check_target(target, select=_names(select), ignore=_names(ignore))
    if format is Form.json:
        print(result.to_json())
    else:
        show(draw(result.wiring) if wiring else check_text(result))
    return 0 if wiring else result.exit_code


@app.command(
    epilog="Examples: `compare --preset first-light --out runs/first-light` · "
    "`compare --schemes pre,post --depths 4,12 --lrs 3e-4,1e-3 --seeds 0,1 --steps 200 --out runs/sweep` · "
    "`compare spec.toml --out runs/mine`"
)
def compare(
    out: Annotated[Path, typer.Option(help="Folder of the comparison; the same command goes on after a stop.")],
    spec: Annotated[Path | None, typer.Argument(help="A TOML file with the settings below; flags win over it.")] = None,
    preset: Annotated[str | None, typer.Option(help="A ready comparison: first-light.")] = None,
    schemes: Annotated[str | None, typer.Option(help="Residual schemes, see `streamgauge schemes`.")] = None,
    norms: Annotated[str | None, typer.Option(help="Norms; default: each scheme's own.")] = None,
    inits: Annotated[str | None, typer.Option(help="Init rules; default: each scheme's own.")] = None,
    depths: Annotated[str | None, typer.Option(help="Numbers of blocks.")] = None,
    lrs: Annotated[str | None, typer.Option(help="Peak learning rates.")] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds of initialization and data order.")] = None,
    width: Annotated[int | None, typer.Option(help="Channels of the stream.")] = None,
    heads: Annotated[int | None, typer.Option(help="Attention heads; must divide the width.")] = None,
    context: Annotated[int | None, typer.Option(help="Bytes that the model sees.")] = None,
    batch: Annotated[int | None, typer.Option(help="Sequences per step.")] = None,
    steps: Annotated[int | None, typer.Option(help="Optimizer steps.")] = None,
    warmup: Annotated[int | None, typer.Option(help="Steps of linear warm-up; default: a tenth.")] = None,
    min_lr: Annotated[float | None, typer.Option(help="End of the cosine, as a share of the peak.")] = None,
    clip: Annotated[float | None, typer.Option(help="Largest gradient norm; 0: no clipping.")] = None,
    beta1: Annotated[float | None, typer.Option(help="AdamW's first beta.")] = None,
    beta2: Annotated[float | None, typer.Option(help="AdamW's second beta.")] = None,
    eps: Annotated[float | None, typer.Option(help="AdamW's epsilon.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Decay of matrices.")] = None,
    every: Annotated[int | None, typer.Option(help="Steps between two sampled steps of the gauge.")] = None,
    validate_every: Annotated[int | None, typer.Option(help="Steps between two validations.")] = None,
    validation_batches: Annotated[int | None, typer.Option(help="Fixed batches of a validation.")] = None,
    data: Annotated[str | None, typer.Option(help="stdlib (Python's own sources), or text files.")] = None,
    workers: Annotated[int | None, typer.Option(help="Arms at a time, one thread each; default: all cores.")] = None,
    progress: Annotated[bool, typer.Option(help="Show progress bars.")] = True,
) -> int:
    """Train schemes side by side on identical batches and write one report.

    Arms are schemes x norms x inits x depths x lrs x seeds; each is a run folder under OUT/arms. Data, seeds and
    order of batches are the same for all. A stopped comparison goes on where it was.
    """
    from streamgauge import api
    from streamgauge.reporting import arms_table, show

    flags: dict[str, Any] = {
        "schemes": _list(schemes, str, "--schemes", "names"),
        "norms": _list(norms, str, "--norms", "names"),
        "inits": _list(inits, str, "--inits", "names"),
        "depths": _list(depths, int, "--depths", "whole numbers"),
        "lrs": _list(lrs, float, "--lrs", "numbers"),
        "seeds": _list(seeds, int, "--seeds", "whole numbers"),
        "data": _list(data, str, "--data", "files"),
        "width": width,
        "heads": heads,
        "context": context,
        "batch": batch,
        "steps": steps,
        "warmup": warmup,
        "min_lr": min_lr,
        "clip": clip,
        "beta1": beta1,
        "beta2": beta2,
        "eps": eps,
        "weight_decay": weight_decay,
        "every": every,
        "validate_every": validate_every,
        "validation_batches": validation_batches,
    }
    if preset is not None and spec is not None:
        raise InputError("--preset and a TOML file are both given; keep one of the two")
    comparison = api.compare(spec, out, preset=preset, workers=workers, progress=progress, **flags)
    show(arms_table(comparison.report()))
    print(f"report: {comparison.path / 'report.html'}")
    for name, why in comparison.failed.items():
        print(f"streamgauge: arm {name} failed: {why}", file=sys.stderr)
    return int(bool(comparison.failed))


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="A run's folder, or a comparison's; also one still being written.")],
    out: Annotated[Path | None, typer.Option(help="The HTML file; default: report.html in the folder.")] = None,
) -> int:
    """Write the report of a run or a comparison: one HTML file that opens without a network."""
    from streamgauge.api import report as write_report

    print(write_report(run, out))
    return 0


@app.command()
def explain(
    rule: Annotated[str | None, typer.Argument(help="A code or a name; without one, all rules are listed.")] = None,
) -> int:
    """What a finding means: what the rule does, why it matters, its threshold and source, how to fix it."""
    from streamgauge.reporting import show
    from streamgauge.reporting.checks import listing
    from streamgauge.rules import catalogue
    from streamgauge.rules import explain as text

    if rule is not None:
        print(text(rule))
    else:
        show(
            listing(
                ("code", "rule", "family", "what it finds"),
                ((r.code, r.name, r.family, r.text.summary) for r in catalogue()),
            )
        )
    return 0


@app.command()
def schemes(
    name: Annotated[str | None, typer.Argument(help="A scheme; without one, all are listed.")] = None,
) -> int:
    """The residual schemes that can be built: equation, paper, init, and when to use them."""
    from streamgauge.nn import SCHEMES, describe, equation
    from streamgauge.reporting import show
    from streamgauge.reporting.checks import listing

    if name is not None:
        print(describe(name))
    else:
        rows = ((key, s.title, equation(s), f"{s.paper}, arXiv {s.arxiv}") for key, s in SCHEMES.items())
        show(listing(("scheme", "what it is", "equation", "paper"), rows))
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; every error of the user's is one line on standard error and exit code 2."""
    try:
        command = typer.main.get_command(app)
        code = command.main(
            list(sys.argv[1:] if arguments is None else arguments), "streamgauge", standalone_mode=False
        )
        return code if isinstance(code, int) else 0
    except InputError as error:
        return _fail(str(error))
    except (KeyboardInterrupt, typer.Abort) as stop:
        print(f"streamgauge: {stop or 'stopped'}", file=sys.stderr)
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


if __name__ == "__main__":
    sys.exit(main())
