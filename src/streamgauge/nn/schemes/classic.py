"""The control without a residual, and the placements of the norm that need no further constant."""

from __future__ import annotations

from streamgauge.errors import InputError
from streamgauge.nn.joins import B2T, NoResidual, PostNorm, PreNorm, Sandwich, each
from streamgauge.nn.schemes.base import Scheme, normed, one, published
from streamgauge.nn.site import READERS, WRITERS, Matrix


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
        use="Shallow models with warm-up; how deep it goes depends on init, rate and warm-up (often about 12 blocks).",
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
        paper="Baevski & Auli 2018; Child et al. 2019; Wang et al. 2019; GPT-2; analysed by Xiong et al. 2020",
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
    Source: Takase et al. 2022, arXiv 2206.00330; takase/b2t_connection, transformer_layer.py.
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
        use="Deep models that should keep the quality of Post-LN; needs its warm-up. rescale=True where the gradient "
        "must stay level: without it, it still decays with depth.",
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
