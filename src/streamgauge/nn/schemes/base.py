"""Scheme: a published topology as a value."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ParamSpec

from torch import nn

from streamgauge.errors import InputError, unknown
from streamgauge.nn.joins import JoinMaker
from streamgauge.nn.norms import NormMaker
from streamgauge.nn.site import Matrix, Site

P = ParamSpec("P")


def untouched(site: Site, norm: NormMaker) -> nn.Module:
    """The embeddings are the stream; the stream is the features."""
    return nn.Identity()


def normed(site: Site, norm: NormMaker) -> nn.Module:
    """N(x): the final norm of a scheme whose sublayers read the stream through one."""
    return norm(site)


def one(matrix: Matrix) -> float:
    return 1.0


@dataclass(frozen=True)
class Scheme:
    """A residual and normalization topology: four builders, two defaults, and where it comes from.

    join     (site, norm) -> module that folds a block's sublayers into the stream
    enter    (site, norm) -> module, embeddings -> stream;  exit likewise, stream -> features
    gain     factor on the std that the init rule gives a matrix
    norm, init     the defaults, by name
    init_note, params    what the scheme adds to the init rule and to the norms' parameters, in words
    residual       False where a sublayer's output replaces the stream
    normless       why norm="none" makes no sense here; empty where it does
    warmup, warmup_reason    steps of linear warm-up that the source uses or that suffice, and why
    options        what was chosen other than the default
    """

    name: str
    title: str
    join: JoinMaker
    paper: str
    arxiv: str
    summary: str
    use: str
    warmup: int
    warmup_reason: str
    enter: JoinMaker = untouched
    exit: JoinMaker = untouched
    gain: Callable[[Matrix], float] = one
    norm: str = "layernorm"
    init: str = "xavier"
    init_note: str = ""
    params: str = "none beyond the norms"
    residual: bool = True
    normless: str = ""
    options: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        chosen = ", ".join(f"{key}={value!r}" for key, value in self.options)
        return f"{self.name}({chosen})" if chosen else self.name


def published(make: Callable[P, Scheme]) -> Callable[P, Scheme]:
    """Check the names of the options, and note in the scheme those that differ from the default."""
    known = {key: option.default for key, option in inspect.signature(make).parameters.items()}

    @functools.wraps(make)
    def build(*args: P.args, **options: P.kwargs) -> Scheme:
        if args:
            raise InputError(f"scheme {make.__name__!r}: give options by name, not {args[0]!r}")
        for key in options:
            if not known:
                raise InputError(f"scheme {make.__name__!r} has no options; leave {key!r} out")
            if key not in known:
                raise unknown(f"option of scheme {make.__name__!r}:", key, known)
        chosen = tuple((key, value) for key, value in options.items() if value != known[key])
        return replace(make(*args, **options), options=chosen)

    return build
