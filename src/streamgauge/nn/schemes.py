"""The published schemes: each a value that builds its joins and says where it comes from and when to use it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ParamSpec

from torch import nn

from streamgauge.errors import InputError, unknown
from streamgauge.nn.joins import B2T, JoinMaker, NoResidual, PostNorm, PreNorm, Sandwich, each
from streamgauge.nn.norms import NormMaker
from streamgauge.nn.site import READERS, WRITERS, Matrix, Site
from streamgauge.registry import Registry

P = ParamSpec("P")


def untouched(site: Site, norm: NormMaker) -> nn.Module:
    """Embeddings are the stream, the stream is the features."""
    return nn.Identity()


def normed(site: Site, norm: NormMaker) -> nn.Module:
    """A norm of its own: the final norm of every scheme whose sublayers read the stream through one."""
    return norm(site)


def one(matrix: Matrix) -> float:
    return 1.0


@dataclass(frozen=True)
class Scheme:
    """A residual and normalization topology.

    join     (site, norm) -> module that folds a block's sublayers into the stream
    enter    (site, norm) -> module, embeddings -> stream;  exit: stream -> features
    gain     factor on the std that the init rule gives a matrix
    norm, init   the defaults, by name
    residual False where a sublayer's output replaces the stream
    normless     why norm="none" makes no sense here; empty where it does
    warmup   optimizer steps of linear warm-up that the source uses or that suffice; warmup_reason says which
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
    """Check the options by name and keep those that differ from the default in the scheme."""
    known = {key: p.default for key, p in inspect.signature(make).parameters.items()}

    @functools.wraps(make)
    def build(*args: P.args, **options: P.kwargs) -> Scheme:
        for key in options:
            if not known:
                raise InputError(f"scheme {make.__name__!r} has no options; leave {key!r} out")
            if key not in known:
                raise unknown(f"option of scheme {make.__name__!r}", key, known)
        scheme = make(*args, **options)
        given = {**dict(zip(known, args, strict=False)), **options}
        return replace(scheme, options=tuple((k, v) for k, v in given.items() if v != known[k]))

    return build


@published
def none() -> Scheme:
    """x <- f(N(x)), the control without a residual stream; a final norm as in Pre-LN."""
    return Scheme(
        "none",
        "No residual",
        each(NoResidual),
        paper="Dong, Cordonnier & Loukas 2021 (theory of its collapse)",
        arxiv="2103.03404",
        summary="Each sublayer's output replaces the stream. Tokens become equal with depth.",
        use="As the control of a comparison; for a model that should train, take pre.",
        warmup=0,
        warmup_reason="warm-up does not mend the collapse of the tokens",
        exit=normed,
        residual=False,
    )


@published
def post() -> Scheme:
    """x <- N(x + f(x)); no final norm, the last N is it."""
    return Scheme(
        "post",
        "Post-LN",
        each(PostNorm),
        paper="Vaswani et al. 2017",
        arxiv="1706.03762",
        summary="The original transformer: the norm stands on the stream, after the addition.",
        use="Up to about 12 blocks with warm-up, where the quality of a shallow model counts.",
        warmup=4000,
        warmup_reason="Vaswani et al. 2017, section 5.3; without it Post-LN often diverges (Xiong et al. 2020)",
    )


@published
def pre() -> Scheme:
    """x <- x + f(N(x)); final norm."""
    return Scheme(
        "pre",
        "Pre-LN",
        each(PreNorm),
        paper="Xiong et al. 2020; GPT-2 (Radford et al. 2019)",
        arxiv="2002.04745",
        summary="The norm stands before each sublayer, the stream stays free; its variance grows with depth.",
        use="The safe default at any depth; little or no warm-up.",
        warmup=0,
        warmup_reason="Xiong et al. 2020: Pre-LN trains without warm-up; a hundred steps do no harm",
        exit=normed,
        init="gpt2",
    )


def _rescaled(matrix: Matrix) -> float:
    return matrix.site.blocks**-0.5 if matrix.role in READERS + WRITERS else 1.0


@published
def b2t(rescale: bool = False) -> Scheme:
    """h = N(x + f1(x)),  y = N(x + h + f2(h)): the block's input skips every norm of the block but the last.

    rescale  multiply every matrix of a block by L^-1/2 at init, as the authors' code does since May 2023.
    Source: Takase et al. 2022, arXiv 2206.00330, equation 12 and figure 1c.
    """
    if not isinstance(rescale, bool):
        raise InputError(f"b2t: rescale must be True or False, not {rescale!r}")
    return Scheme(
        "b2t",
        "B2T connection",
        B2T,
        paper="Takase, Kiyono, Kobayashi & Suzuki 2022",
        arxiv="2206.00330",
        summary="Post-LN with one more skip per block, from the block's bottom to before its last norm.",
        use="Deep models that should keep the quality of Post-LN; needs its warm-up. rescale=True beyond 12 blocks.",
        warmup=4000,
        warmup_reason="the authors' recipe; B2T is still Post-LN",
        gain=_rescaled if rescale else one,
        init_note="every matrix of a block x L^-1/2" if rescale else "",
        normless="without norms the block's input is added twice, so the stream doubles with each block",
    )


@published
def sandwich() -> Scheme:
    """x <- x + N_out(f(N(x))); final norm."""
    return Scheme(
        "sandwich",
        "Sandwich-LN",
        each(Sandwich),
        paper="Ding et al. 2021 (CogView)",
        arxiv="2105.13290",
        summary="Pre-LN with a second norm on the branch, so that each sublayer adds at most its gain.",
        use="Where activations grow or overflow in half precision under Pre-LN.",
        warmup=0,
        warmup_reason="trains without, as Pre-LN does; a hundred steps do no harm",
        exit=normed,
        init="gpt2",
        normless="without norms it is the plain residual x + f(x), which scheme='pre' with norm='none' gives",
    )


SCHEMES: Registry[Scheme] = Registry(
    "scheme", {"none": none(), "post": post(), "pre": pre(), "b2t": b2t(), "sandwich": sandwich()}
)


def choose_scheme(scheme: str | Scheme) -> Scheme:
    """The scheme of that name, or the scheme itself."""
    if isinstance(scheme, Scheme):
        return scheme
    if not isinstance(scheme, str):
        raise InputError(f"scheme must be a name or a Scheme such as nn.b2t(rescale=True), not {scheme!r}")
    return SCHEMES[scheme]
