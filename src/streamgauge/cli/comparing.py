"""`streamgauge compare`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from streamgauge.cli.flags import listed, path
from streamgauge.errors import InputError

EPILOG = (
    "Examples: `compare --preset first-light --out runs/first-light` · "
    "`compare --schemes pre,post --depths 4,12 --lrs 3e-4,1e-3 --seeds 0,1 --steps 200 --out runs/sweep` · "
    "`compare spec.toml --out runs/mine`"
)


def compare(
    out: Annotated[
        Path,
        typer.Option(
            parser=path, metavar="PATH", help="Folder of the comparison; the same command goes on after a stop."
        ),
    ],
    spec: Annotated[
        Path | None,
        typer.Argument(
            help="A TOML file with the settings below; flags win over it.",
            parser=path,
            metavar="PATH",
        ),
    ] = None,
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
        "schemes": listed(schemes, str, "--schemes", "names"),
        "norms": listed(norms, str, "--norms", "names"),
        "inits": listed(inits, str, "--inits", "names"),
        "depths": listed(depths, int, "--depths", "whole numbers"),
        "lrs": listed(lrs, float, "--lrs", "numbers"),
        "seeds": listed(seeds, int, "--seeds", "whole numbers"),
        "data": listed(data, str, "--data", "files"),
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
