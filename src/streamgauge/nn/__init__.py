"""Build: norms, schemes, init rules, sublayers and models, each as its paper's equation."""

from __future__ import annotations

from streamgauge.nn.attention import Attention
from streamgauge.nn.decoder import Decoder
from streamgauge.nn.equation import describe, equation
from streamgauge.nn.feedforward import FeedForward, SwiGLU
from streamgauge.nn.inits import INITS, Init, gpt2, xavier
from streamgauge.nn.joins import B2T, Each, NoResidual, PostNorm, PreNorm, Sandwich, each
from streamgauge.nn.norms import NORMS, LayerNorm, RMSNorm
from streamgauge.nn.recipes import Advice, recipe
from streamgauge.nn.schemes import SCHEMES, Scheme, b2t, none, post, pre, sandwich
from streamgauge.nn.site import Matrix, Site
from streamgauge.nn.stack import Block, Stack

__all__ = [
    "B2T",
    "INITS",
    "NORMS",
    "SCHEMES",
    "Advice",
    "Attention",
    "Block",
    "Decoder",
    "Each",
    "FeedForward",
    "Init",
    "LayerNorm",
    "Matrix",
    "NoResidual",
    "PostNorm",
    "PreNorm",
    "RMSNorm",
    "Sandwich",
    "Scheme",
    "Site",
    "Stack",
    "SwiGLU",
    "b2t",
    "describe",
    "each",
    "equation",
    "gpt2",
    "none",
    "post",
    "pre",
    "recipe",
    "sandwich",
    "xavier",
]
