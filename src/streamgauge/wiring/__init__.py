"""Read the residual structure of a model off its computation graph.

    wiring = read_wiring(model, *args, **kwargs)

One forward pass is recorded as a graph of tensor operations; everything below is arithmetic on that graph. Module
names and classes are never looked at; modules serve only to say where a tensor can be hooked.

Definitions
-----------
*Heavy* operation: a product with a matrix, a convolution, attention, a scan, a Fourier transform, a pooling. All
others (element-wise, layout, reductions, norms) are *light*.

*Sum*: additions that feed each other and nothing else are one sum, a0 t0 + a1 t1 + ... of its terms.

*Join*: in a sum, a term s (the *skip*, up to layout, casts, dropout, masks and scales) from which another term b (the
*branch*) is computed through at least one heavy operation; s may also be the stream while b is computed from an
earlier state of the same stream. A sum of one skip and k branches is k joins, in the order of the additions:

- branches that were added to each other first are one branch (routed + shared experts, W x + B A x), unless one of
  them alone mixes tokens: `x + (attention + mlp)` is two joins, like `(x + attention) + mlp`;
- every further skip in the same sum is one more join of kind "other": in B2T, y = N(x + h + f2(h)) with
  h = N(x + f1(x)), a block has three joins, all "post": + f1, + f2 and + x (the long skip). The joins of one sum have
  the same `out_tap`; the long skip's `stream_tap` is x (the block's input), its `branch_tap` is None;
- a lone join inside a branch whose own skip was made by a heavy operation in that branch, or whose result goes on
  only through heavy operations while the stream passes it by, is not a join (D x of a state-space scan, positions
  added to queries); two or more chained ones inside a branch are an inner stream and are counted.

*Placement*: let n1 = the first heavy operations of the branch read the stream through a norm (if only some do,
`unplaced` says so; if the stream itself goes on inside the branch, as an inner stream does, n1 is false), n2 = the
branch's last heavy operation is followed by a norm before the sum, n3 = the sum is normed and only the normed value
goes on.

    n1          pre; parallel-pre where the same sum has several branches and one of them mixes tokens
    n1 n2       sandwich                n3          post   (also n2 n3: norm(x + norm(f(x))))
    n2          output                  n1 n3       pre+post   (also n1 n2 n3)
    (nothing)   none                    cannot be said: unrecognised

The last sum of a stream is normed by its own post norm when the join before that is most like it (same norms and kind,
same predecessors) has one, or when it has neither n1 nor n2 and there is none to compare; else that norm is the final
norm. A residual that is taken from the
normed value (h = N(x); x = h + f(h)) is the same graph as Post-LN and reads "post"; where the norm is executed
in the block of the next join, `notes` has a line that begins with "residual from normed".

`norm`, `eps`: of the entry norm for pre, parallel-pre and sandwich, of the branch's for output, of the sum's for
post and pre+post. `norm` is None for none. Gains and biases, (1 + gain), and modulation belong to the norm.

*Scales*: `skip_scale` and `branch_scale` are the constants that multiply skip and branch, `(x + f) * c` gives c to
both; "learned" for one trained number; "learned-vector" on the skip for one number per channel. On the branch a
learned vector is `per_channel=True` and `branch_scale` holds the constant beside it or None. A gate computed from
data is no scale. A factor after the entry norm (LayerNorm Scaling) belongs to the branch's input: it is no scale.

*Kind*: "attention" (softmax weights applied to values made from the stream), "cross-attention" (made from
elsewhere), "mixer" (any other operation across tokens), "ffn" (none).

*Several streams*: a branch that is added to more than one skip (ResiDual) or spread over several copies, and sums of
mixed states (hyper-connections), give joins with placement "unrecognised", one for each branch, and a line in
`unplaced`. Attention that is in no branch that could be read has a line there too.

*Unjoined*: on a stretch where no skip passes by, an attention, mixer or ffn (two products with a nonlinearity
between) that ends in the shape of its input. Nothing is unjoined in a model without attention, and feed-forward stems
before and heads after the sublayers are not. Placement
"none", `stream_tap` its input (before its norm), `branch_tap` = `out_tap` its output.

*final_norm*: any norm between the last join (after its own post norm) and the primary output: `logits`, else
`last_hidden_state`, else the first tensor. `Norm.role` is "final" when no heavy operation stands between.

*Taps*: a `Tap` says on which module a forward hook finds the tensor, and at which index among
`tensors_of((args, kwargs))` or `tensors_of(output)`. `stream_tap` and `out_tap` are given only where the tensor there
carries the whole gradient of the stream (every use of the stream goes through it), `branch_tap` where the tensor is
the branch's output (before its scale, if need be). None where no module boundary shows such a tensor.
"""

from __future__ import annotations

from streamgauge.wiring.calls import tensors_of
from streamgauge.wiring.inputs import guess_inputs
from streamgauge.wiring.presets import PRESETS
from streamgauge.wiring.read import read_wiring
from streamgauge.wiring.source import Source, load_model

__all__ = [
    "PRESETS",
    "Source",
    "guess_inputs",
    "load_model",
    "read_wiring",
    "tensors_of",
]
