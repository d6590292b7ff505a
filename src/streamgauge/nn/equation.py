"""The equation of a scheme, printed from the code that runs: a join's `forward` is called with symbols."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from streamgauge.nn.inits import INITS
from streamgauge.nn.joins import Each
from streamgauge.nn.norms import NormChoice
from streamgauge.nn.schemes import Scheme, choose_scheme
from streamgauge.nn.site import Site


@dataclass(frozen=True, eq=False)
class Term:
    """A symbol, or an operation on terms. Terms compare by identity, so that a value used twice is seen as one."""

    op: str
    args: tuple[Term, ...] = ()

    def __add__(self, other: Any) -> Term:
        return Term("+", (self, _term(other)))

    def __radd__(self, other: Any) -> Term:
        return _term(other) + self

    def __sub__(self, other: Any) -> Term:
        return Term("-", (self, _term(other)))

    def __mul__(self, other: Any) -> Term:
        return Term("*", (self, _term(other)))

    def __rmul__(self, other: Any) -> Term:
        return _term(other) * self

    def __truediv__(self, other: Any) -> Term:
        return Term("/", (self, _term(other)))


def _term(value: Any) -> Term:
    return value if isinstance(value, Term) else Term(f"{value:g}")


@dataclass(frozen=True)
class Function:
    """A named map of terms: a norm or a sublayer."""

    name: str

    def __call__(self, x: Term) -> Term:
        return Term(self.name, (x,))


class Symbols:
    """Stands in for a module: submodules become functions, parameters and constants become symbols of their name."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        label = name.replace("norms", "N").replace("norm", "N")
        if isinstance(value, nn.ModuleList):
            return [Function(f"{label}{k + 1}") for k in range(len(value))]
        if isinstance(value, nn.Module):
            return Function(label)
        return Term(name)


def equation(scheme: str | Scheme) -> str:
    """One line such as "x <- x + f(N(x))", from a join's own forward called with symbols.

    A value used more than once is named: "x <- N2(x + h + f2(h)),  h = N1(x + f1(x))". Where a join does more than
    sums, products and calls, the line is the first of its docstring.
    """
    chosen = choose_scheme(scheme)
    with torch.device("meta"):
        join = chosen.join(Site(0, 2, 4), NormChoice(chosen.norm))
    fs: Any = [Function("f1"), Function("f2")]
    if isinstance(join, Each):
        join, fs = join[0], Function("f")
    x = Term("x")
    try:
        y = type(join).forward(Symbols(join), x, fs)
    except (AttributeError, TypeError):
        return (type(join).__doc__ or "").strip().splitlines()[0]
    return f"x <- {_written(y)}"


def _written(root: Term) -> str:
    uses: Counter[int] = Counter()
    seen: list[Term] = []

    def count(term: Term) -> None:
        uses[id(term)] += 1
        if uses[id(term)] == 1:
            for arg in term.args:
                count(arg)
            seen.append(term)

    count(root)
    shared = [term for term in seen if term.args and uses[id(term)] > 1]
    names = {id(term): "h" if k == 0 else f"h{k + 1}" for k, term in enumerate(shared)}

    def text(term: Term, top: bool = False) -> str:
        if not top and id(term) in names:
            return names[id(term)]
        if not term.args:
            return term.op
        if term.op in "+-":
            return f"{text(term.args[0])} {term.op} {text(term.args[1])}"
        if term.op in "*/":
            left, right = (f"({text(a)})" if a.op in "+-" and id(a) not in names else text(a) for a in term.args)
            return f"{left} {term.op} {right}"
        return f"{term.op}({', '.join(text(arg) for arg in term.args)})"

    where = [f"{names[id(term)]} = {text(term, top=True)}" for term in shared]
    return ",  ".join([text(root, top=True), *where])


def describe(scheme: str | Scheme) -> str:
    """What a scheme is, as text: equation, ends of the stream, parameters, init, warm-up, use, source."""
    s = choose_scheme(scheme)
    site = Site(0, 2, 4)
    with torch.device("meta"):
        ends = [build(site, NormChoice(s.norm)) for build in (s.enter, s.exit)]
    enter, leave = ("x" if isinstance(end, nn.Identity) else "N(x)" for end in ends)
    final = "with" if leave == "N(x)" else "no"
    note = f"; {s.init_note}" if s.init_note else ""
    rows = {
        "equation": equation(s),
        "stream": f"enters as {enter}, leaves as {leave} ({final} final norm)",
        "norm": s.norm,
        "parameters": s.params,
        "init": f"{s.init}: {INITS[s.init].summary}{note}",
        "warm-up": (f"{s.warmup} steps; " if s.warmup else "none needed; ") + s.warmup_reason,
        "what": s.summary,
        "use": s.use,
        "source": f"{s.paper}, arXiv {s.arxiv}",
    }
    width = max(map(len, rows))
    return "\n".join([f"{s} - {s.title}", *(f"  {key:<{width}}  {value}" for key, value in rows.items())])
