"""Decoder: a causal language model around any scheme."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

from torch import Tensor, nn

from streamgauge.errors import InputError, unknown
from streamgauge.nn import checks
from streamgauge.nn.attention import Attention, rope_table
from streamgauge.nn.declare import declare
from streamgauge.nn.feedforward import FeedForward, SwiGLU
from streamgauge.nn.inits import Init
from streamgauge.nn.norms import choose_norm
from streamgauge.nn.schemes import Scheme, choose_scheme
from streamgauge.nn.site import Matrix, Role, Site
from streamgauge.nn.stack import Stack
from streamgauge.vocabulary import Wiring

FFNS: dict[str, type[FeedForward] | type[SwiGLU]] = {"gelu": FeedForward, "swiglu": SwiGLU}
POSITIONS = ("learned", "rope", "none")


class Decoder(nn.Module):
    """logits = head(stack(embed(ids))).  ids (B, T) int64, T <= context -> logits (B, T, vocab).

    scheme     a name of SCHEMES, or a scheme with options such as nn.b2t(rescale=True)
    norm       a name of NORMS, "none", a norm class, or a function Site -> module; None: the scheme's own
    init       a name of INITS or an Init; None: the scheme's own
    eps        of every norm; None: the norm's own
    hidden     size of the feed-forward layer; None: 4 width, for SwiGLU 8/3 width rounded up to a multiple of 8
    tied       the head is the token embedding
    dropout    on attention weights, on each branch and on the embeddings
    checkpoint compute each block's activations again in the backward pass instead of keeping them

    Errors: InputError, one line, for a name that is unknown, a size that does not fit, an option nothing would use.
    """

    rope: Tensor | None

    def __init__(
        self,
        vocab: int,
        depth: int,
        width: int,
        heads: int,
        scheme: str | Scheme = "pre",
        norm: Any = None,
        init: str | Init | None = None,
        context: int = 256,
        *,
        eps: float | None = None,
        ffn: Literal["gelu", "swiglu"] = "gelu",
        hidden: int | None = None,
        positions: Literal["learned", "rope", "none"] = "learned",
        bias: bool = True,
        tied: bool = False,
        dropout: float = 0.0,
        checkpoint: bool = False,
    ) -> None:
        super().__init__()
        sizes = {"vocab": vocab, "depth": depth, "width": width, "heads": heads, "context": context}
        for name, value in sizes.items():
            checks.whole(name, value)
        checks.split_heads(width, heads)
        checks.share("dropout", dropout)
        if ffn not in FFNS:
            raise unknown("ffn", ffn, FFNS)
        if positions not in POSITIONS:
            raise unknown("positions", positions, POSITIONS)
        if positions == "rope" and (width // heads) % 2:
            raise InputError(f"positions='rope' needs an even head size, not {width // heads}; change width or heads")
        if hidden is None:
            hidden = 4 * width if ffn == "gelu" else 8 * math.ceil(width / 3)
        checks.whole("hidden", hidden)

        self.vocab, self.depth, self.width, self.heads, self.context = vocab, depth, width, heads, context
        self.scheme = choose_scheme(scheme)
        self.init = checks.choose_init(init, self.scheme)
        self.dropout = dropout
        norm = self.scheme.norm if norm is None else norm
        checks.norm_allowed(self.scheme, norm)
        first = Site(0, depth, width)

        def sublayers(site: Site) -> dict[str, nn.Module]:
            return {
                "attention": Attention(width, heads, bias=bias, dropout=dropout),
                "ffn": FFNS[ffn](width, hidden, bias=bias, dropout=dropout),
            }

        self.token = nn.Embedding(vocab, width)
        self.position = nn.Embedding(context, width) if positions == "learned" else None
        rope = rope_table(context, width // heads) if positions == "rope" else None
        self.register_buffer("rope", rope, persistent=False)
        self.stack = Stack(self.scheme, first, choose_norm(norm, eps), sublayers)
        self.stack.checkpoint = checkpoint
        self.head = nn.Linear(width, vocab, bias=False)
        if tied:
            self.head.weight = self.token.weight
        self.initialize()

    def forward(self, ids: Tensor) -> Tensor:
        if ids.dim() != 2 or ids.shape[1] > self.context:
            raise InputError(f"ids must be (batch, tokens) with at most {self.context} tokens, not {tuple(ids.shape)}")
        T = ids.shape[1]
        x = self.token(ids)
        if self.init.scale_embeddings:
            x = x * self.width**0.5
        if self.position is not None:
            x = x + self.position.weight[:T]
        if self.dropout and self.training:
            x = nn.functional.dropout(x, self.dropout)
        tables = {} if self.rope is None else {"rope": self.rope[:, :T].to(x.dtype).unbind(0)}
        logits: Tensor = self.head(self.stack(x, **tables))
        return logits

    def matrices(self) -> list[tuple[Matrix, Tensor]]:
        """Every weight matrix with its role and place; q, k and v are views of their fused parameter."""
        first = self.stack.first
        found: list[tuple[Role, Tensor, Site]] = [("token", self.token.weight, first)]
        if self.position is not None:
            found.append(("position", self.position.weight, first))
        for site, _, _, f in self.stack.places():
            found += [(role, weight, site) for role, weight in f.matrices().items()]
        if self.head.weight is not self.token.weight:
            found.append(("head", self.head.weight, replace(first, block=self.depth)))
        residual = self.scheme.residual
        return [(Matrix(role, w.shape[1], w.shape[0], site, residual), w) for role, w, site in found]

    def initialize(self) -> None:
        """Draw every matrix by the init rule times the scheme's gain; biases 0, norms at their identity.

        Completes a model made on the meta device after `to_empty`.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
            reset = getattr(module, "reset_parameters", None)
            if callable(reset) and not isinstance(module, (nn.Linear, nn.Embedding)):
                reset()
        if self.rope is not None:
            self.rope.copy_(rope_table(self.context, self.width // self.heads))
        for matrix, weight in self.matrices():
            self.init.fill(weight, matrix, self.scheme.gain(matrix))

    def declared_wiring(self) -> Wiring:
        """The wiring that this model was built to have; reading it back from a forward pass must agree."""
        return declare(self.stack, self.scheme, prefix="stack")

    def extra_repr(self) -> str:
        return f"scheme={self.scheme}, init={self.init.name}, depth={self.depth}, width={self.width}"
