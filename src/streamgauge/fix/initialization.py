"""Remedies for weights that start at the wrong size. For models that have not been trained."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import median

import torch
from torch import Tensor, nn

from streamgauge.fix.base import Patient, remedy
from streamgauge.fix.projections import projections
from streamgauge.gauge import measure
from streamgauge.rules import RULES, Evidence
from streamgauge.vocabulary import Finding

TINY_STD = 0.02
"""GPT-2's std of embeddings."""


@remedy("unscaled-residual-init", "each branch's output projection is multiplied by 1/sqrt(number of joins)")
def scale_branches(patient: Patient) -> list[str]:
    """W_o <- W_o / sqrt(K), its bias too, for the output projection of each of the K branches.

    K branches of variance v then add v together, at any depth. Nothing is done where the rule finds no growth on the
    inputs used here. Source: GPT-2 (Radford+ 2019); nanoGPT.
    """
    wiring = patient.wiring()
    readings = measure(patient.model, wiring, patient.loss)
    evidence = Evidence(wiring, {"stream_rms": readings["stream_rms"]})
    answer = RULES["unscaled-residual-init"](evidence)
    if not (isinstance(answer, tuple) and any(isinstance(f, Finding) for f in answer)):
        return []
    factor = len(wiring.joins) ** -0.5
    found = projections(patient, wiring.joins)
    for projection in found:
        for parameter in projection.parameters:
            parameter.mul_(factor)
        patient.forget(projection.parameters)
    return [f"{p.path}: multiplied by 1/sqrt({len(wiring.joins)}) = {factor:.3g}" for p in found]


@remedy("embedding-scale", "embeddings are scaled to std 1/sqrt(width) where tied to the head, to 0.02 where tiny")
def scale_embedding(patient: Patient) -> list[str]:
    """E <- E std / rms(E): std = 1/sqrt(width) for an embedding tied to the head whose logits start with a spread over
    the rule's `spread`; std = 0.02, or that of the largest embedding beside it, for the one with the most rows if
    rms(E)^2 is below the eps of the norm that reads it.

    Other embeddings of that width (positions, segments) that are larger than std get the factor of the tied one: beside
    positions of std 1 tokens of 1/sqrt(width) are drowned (failing run 10, 150 steps: 4.2 nats with the tokens alone
    scaled, 0.9 with both, 1.0 without the remedy, ln 85 = 4.4). A table of zeros is drawn anew; rows of padding that
    are zero stay so. The factor sqrt(width) on the way in is a change of the model's code and is not made.
    Source: Press & Wolf 2017 (arXiv 1608.05859); GPT-2.
    """
    tables = [(n, m) for n, m in patient.model.named_modules() if isinstance(m, nn.Embedding) and m.weight.numel()]
    spread = RULES["embedding-scale"].thresholds["spread"]
    for name, table in tables:
        width = table.weight.shape[1]
        if _held(patient.model, table.weight) > 1 and _rms(table.weight) * math.sqrt(width) > spread:
            factor = width**-0.5 / _rms(table.weight)
            beside = [(n, m.weight) for n, m in tables if m.weight.shape[1] == width and m is not table]
            added = [(n, w) for n, w in beside if w is not table.weight and _rms(w) > width**-0.5]
            chosen = [(name, table.weight), *added]
            return [_rescale(patient, f"{n}.weight", w, factor * _rms(w)) for n, w in chosen]
    if not tables:
        return []
    name, table = max(tables, key=lambda entry: entry[1].weight.shape[0])
    eps = [n.eps for n in patient.wiring().norms if n.eps and n.role in ("join", "embedding")]
    if not eps or _rms(table.weight) ** 2 >= min(eps):
        return []
    sizes = [_rms(m.weight) for _, m in tables if m.weight.shape[1] == table.weight.shape[1] and m is not table]
    return [_rescale(patient, f"{name}.weight", table.weight, max([TINY_STD, *sizes]))]


@remedy("large-init", "matrices are scaled down to std 1/sqrt(fan_in)")
def scale_matrices(patient: Patient) -> list[str]:
    """W <- W / gain for every matrix of a linear map with gain = rms(W) sqrt(fan_in) over 1, where the median gain is
    over the rule's `gain`. Embeddings, and heads tied to one, are left. Source: Glorot & Bengio 2010.
    """
    gains = {name: (weight, _rms(weight) * math.sqrt(fan)) for name, weight, fan in _matrices(patient.model)}
    if len(gains) < 2 or median(gain for _, gain in gains.values()) <= RULES["large-init"].thresholds["gain"]:
        return []
    return [_rescale(patient, n, weight, _rms(weight) / gain) for n, (weight, gain) in gains.items() if gain > 1]


@remedy("dead-parameters", "one of two zero factors is drawn anew (Xavier), so that the other gets a gradient")
def draw_dead(patient: Patient) -> list[str]:
    """A <- Xavier uniform for the first of the zero matrices in each y = B A x whose gradients are all zero.

    dL/dB = 0 and dL/dA = 0 where A = B = 0; with A drawn, dL/dB is not zero, and the output of the branch still is.
    The gradient is that of a random direction in the output. Nothing is done where only a head that is zero moves: all
    gradients wait for it, and they will come. A detached branch has no zero matrix and is not touched.
    """
    drawn: list[str] = []
    while True:
        gradients = _gradients(patient)
        moving = [w for _, w, g in gradients if g]
        if not moving or (len(moving) == 1 and not bool(moving[0].any())):
            return drawn
        dead = {name: weight for name, weight, g in gradients if g == 0.0 and not bool(weight.any())}
        first: dict[str, tuple[str, nn.Parameter]] = {}
        for name, weight in dead.items():
            first.setdefault(_block(name), (name, weight))
        if not first:
            return drawn
        for name, weight in first.values():
            nn.init.xavier_uniform_(weight)
            patient.forget([weight])
            drawn.append(f"{name}: drawn anew, Xavier uniform")


def _block(name: str) -> str:
    """The path up to its first number: "layers.3" of layers.3.mlp.0.weight."""
    parts = name.split(".")
    return ".".join(parts[: next((i for i, part in enumerate(parts) if part.isdigit()), -1) + 1])


def _gradients(patient: Patient) -> list[tuple[str, nn.Parameter, float | None]]:
    """Name, matrix and the largest absolute entry of its gradient; None where it is not used."""
    matrices = [(n, p) for n, p in patient.model.named_parameters() if p.requires_grad and p.dim() > 1]
    with torch.enable_grad():
        found = torch.autograd.grad(patient.loss(), [p for _, p in matrices], allow_unused=True)
    return [(n, p, None if g is None else float(g.abs().max())) for (n, p), g in zip(matrices, found, strict=True)]


def _matrices(model: nn.Module) -> Iterator[tuple[str, nn.Parameter, int]]:
    """Name, weight and fan-in of every matrix that no embedding holds."""
    modules = dict(model.named_modules())
    embedded = {id(m.weight) for m in modules.values() if isinstance(m, nn.Embedding)}
    for name, weight in model.named_parameters():
        owner = modules[name.rpartition(".")[0]]
        if weight.dim() == 2 and id(weight) not in embedded and bool(weight.any()):
            yield name, weight, weight.shape[0 if type(owner).__name__ == "Conv1D" else 1]


def _rescale(patient: Patient, name: str, weight: Tensor, std: float) -> str:
    before = _rms(weight)
    if before:
        weight.mul_(std / before)
    else:
        nn.init.normal_(weight, std=std)
    patient.forget([weight])
    return f"{name}: rms {before:.3g} -> {std:.3g}"


def _rms(weight: Tensor) -> float:
    return float(weight.detach().double().square().mean().sqrt())


def _held(model: nn.Module, weight: Tensor) -> int:
    """In how many places the model holds this tensor."""
    return sum(p is weight for _, p in model.named_parameters(remove_duplicate=False))
