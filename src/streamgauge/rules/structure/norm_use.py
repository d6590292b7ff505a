"""Rules on norms that were built or asked for, and that the graph does not show."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from streamgauge.rules.harm import Harm
from streamgauge.rules.places import site
from streamgauge.rules.rule import Find, rule
from streamgauge.vocabulary import Finding, Flag, Join, Parameter, Quantity, Severity, Wiring

STREAM_NORMS = ("pre", "sandwich", "parallel-pre", "output")


@rule("W011", "unused-norm", explains=("missing-final-norm", "stream-explodes"))
def unused_norm(
    find: Find,
    wiring: Wiring,
    parameters: tuple[Parameter, ...],
    harm: Harm,
) -> Iterator[Finding]:
    """A norm is built, and never used.

    What it does:
        Finds modules named after norms (LayerNorm, RMSNorm ...) whose parameters get no gradient and which the graph
        does not contain, while other parameters beside them are in use. Whole unused modules are left out: layers that
        a container has copied, towers that this loss does not reach.
    Why it matters:
        Someone meant the norm to stand somewhere. Where the branch beside it is un-normed, or the stream reaches the
        head without a norm, that place is missing in `forward`.
    Threshold:
        Warning where a sublayer of the same module has neither norm nor scale, or where the stream ends un-normed and
        the norm stands beside the stack; info elsewhere. Error where the loss shows harm, info where the run trains.
    How to fix:
        Call it in `forward` where it belongs (`x + f(self.norm(x))`, `head(self.norm_f(x))`), or delete it.
    Example:
        `self.ln_f = nn.LayerNorm(width)` in `__init__`, and `return self.head(x)` in `forward`.
    Source:
        Structure: the parameters receive no gradient. GPT-2 and Xiong+ 2020 (arXiv 2002.04745): the norm before the
        head belongs to Pre-LN.
    """
    executed = {norm.path for norm in wiring.norms}
    used = [p.path for p in parameters if p.grad_rms is not None]
    holders = {p.path.rpartition(".")[0]: p for p in parameters if p.trainable and "norm" in p.owner.lower()}
    idle = []
    for path, parameter in holders.items():
        parent = path.rpartition(".")[0]
        beside = [u for u in used if u.startswith(parent + ".") or not parent]
        if parameter.grad_rms is None and path and path not in executed and beside:
            idle.append(path)
    if not idle or not used:
        return
    open_end = bool(wiring.joins) and not wiring.final_norm and wiring.joins[-1].placement in (*STREAM_NORMS, "none")
    missed = [path for path in idle if _beside_bare(path, wiring.sublayers)]
    ends = [path for path in idle if open_end and not any(_holds(path, j.path) for j in wiring.joins)]
    severity: Severity = harm.severity("warning") if missed or ends else "info"
    named = missed or ends or idle
    role = "a branch there has no norm" if missed else "the stream ends un-normed" if ends else "nothing misses it"
    yield find(
        severity,
        named[0] if len(named) == 1 else f"{named[0]} to {named[-1]}",
        f"{len(idle)} norm{'s are' if len(idle) > 1 else ' is'} built and never used; {role}",
        evidence={"unused": Quantity(len(idle), "norms"), **harm.evidence},
        cause=f"`forward` never calls `{named[0]}`, so that its parameters get no gradient",
        fix=f"call `{named[0]}` where it belongs: "
        + ("`head(norm(x))` after the last block" if ends and not missed else "`x + f(norm(x))`")
        + ", or delete it",
    )


def _holds(path: str, holder: str) -> bool:
    """Whether the norm belongs to the module that holds a join, or to one inside it."""
    return bool(holder) and path.startswith(holder + ".")


def _beside_bare(path: str, sublayers: Sequence[Join]) -> bool:
    free = [j for j in sublayers if j.placement == "none" and j.branch_scale is None and not j.per_channel]
    return any(_holds(path, j.path) for j in free)


PRE = re.compile(r"pre_?(layer_?)?(norm|ln)|(norm|normalize|layer_?norm)_?(first|before)|^(pre|before|first)", re.I)
POST = re.compile(r"post_?(layer_?)?(norm|ln)|(norm|normalize|layer_?norm)_?after|^(post|after|last)", re.I)
ELSE = re.compile(r"gate|rescale|residual_in|_eps|_scale|_bias", re.I)
"""Names that speak of norms and not of their place: `norm_before_gate`, `rescale_prenorm_residual`."""
BRANCH_FIRST = ("pre", "sandwich", "parallel-pre", "pre+post")


@rule(
    "W012",
    "norm-flag-ignored",
    explains=("deep-post-norm", "doubled-final-norm", "missing-final-norm", "token-collapse"),
)
def norm_flag_ignored(
    find: Find,
    wiring: Wiring,
    flags: tuple[Flag, ...],
    harm: Harm,
) -> Iterator[Finding]:
    """A setting says where the norms stand, and the graph shows them elsewhere.

    What it does:
        Reads attributes of modules and fields of configs such as `normalize_before`, `norm_first`, `pre_norm`, and
        compares them with the placements of the joins inside the module that holds them.
    Why it matters:
        The setting has an effect in the user's mind only. Most often a wrapper takes it and does not pass it on, so
        that a deep stack that is believed to be Pre-LN trains as Post-LN, with the learning rate and warm-up of Pre-LN.
    Threshold:
        Contradicted by every join inside the module: warning where the setting asks for Pre-LN, info where it asks for
        Post-LN and Pre-LN is found (the easier one to train). Error where the loss shows harm, info where the run
        trains.
    How to fix:
        Pass the setting on to the layers (torch: `nn.TransformerEncoderLayer(..., norm_first=normalize_before)`).
    Example:
        `LM(normalize_before=True)` that builds `nn.TransformerEncoderLayer(width, heads)`: the layers are Post-LN, the
        default of torch.
    Source:
        Structure: the graph against the setting. Cf. k2-fsa/snowfall PR 184.
    """
    for flag in flags:
        wanted = _wanted(flag)
        joins = [j for j in wiring.joins if _within(j.path, flag.path)]
        placements = {j.placement for j in joins} - {"unrecognised"}
        if wanted is None or not joins or not placements:
            continue
        if wanted == "pre" and placements == {"post"}:
            severity, meant = harm.severity("warning"), "Pre-LN"
        elif wanted == "post" and placements <= set(BRANCH_FIRST) - {"pre+post"}:
            severity, meant = "info", "Post-LN"
        else:
            continue
        found = ", ".join(sorted(placements))
        setting = f"{flag.path}.{flag.name}" if flag.path else flag.name
        yield find(
            severity,
            site(joins),
            f"{setting} = {flag.value!r} asks for {meant}, and all {len(joins)} joins under it read {found}",
            evidence={
                "setting": Quantity(f"{setting}={flag.value}", "setting"),
                "placement": Quantity(found, "placement"),
                "joins": Quantity(len(joins), "joins"),
                **harm.evidence,
            },
            cause=f"`{setting}` is stored and does not reach the layers",
            fix=f"pass it on where the layers are built: `norm_first={flag.name}` (torch), `{flag.name}={flag.name}`; "
            "or drop the setting and set learning rate and warm-up for the placement that is there",
        )
        return


def _wanted(flag: Flag) -> str | None:
    """ "pre" or "post", where the flag says one of them."""
    text = flag.value if isinstance(flag.value, str) else flag.name
    pre, post = PRE.search(text), POST.search(text)
    if ELSE.search(flag.name):
        return None
    if bool(pre) == bool(post):
        return None
    asked = "pre" if pre else "post"
    if flag.value is False:
        return "post" if asked == "pre" else None  # "no post norm" may mean none at all
    return asked


def _within(path: str, holder: str) -> bool:
    """Whether a join lies in the module that holds the flag, or in the one whose config does."""
    parent, _, last = holder.rpartition(".")
    if last in ("config", "cfg", "args", "hparams", "opts", "options", "conf"):
        holder = parent
    return not holder or path == holder or path.startswith(holder + ".")
