"""How much of the gradient comes through the stack, with the size of the stream taken out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from streamgauge.rules.evidence import CannotJudge
from streamgauge.rules.harm import Harm
from streamgauge.rules.places import at_end, end_of_stack, site, span, telling
from streamgauge.vocabulary import Quantity, Readings, Wiring


@dataclass(frozen=True)
class Flow:
    """ratio: first over last, scale-free where `scaled`; slack widens the healthy band where it is not."""

    ratio: float
    scaled: bool
    evidence: dict[str, Quantity]

    @property
    def slack(self) -> float:
        return 1.0 if self.scaled else 50.0

    @property
    def name(self) -> str:
        return "scale-free gradient" if self.scaled else "gradient"


def flow(retention_total: Readings, grad_rms: Readings | None, stream_rms: Readings | None, harm: Harm) -> Flow:
    """e = (g_1 r_1) / (g_K r_K), with g = rms(dL/dx) and r = rms(x) of the stream x that leaves sublayer 1 .. K.

    Under x -> c x the gradient goes as 1/c, so g r does not depend on the scale of the stream: along a Pre-LN stream
    retention is sqrt(S_K / S_1) by growth alone (identity A0), and a sandwich stack on embeddings of std 0.02 shows a
    raw ratio of 476 at 24 blocks where e = 1.4. Without both readings the raw ratio stands in, with a wider band.
    """
    raw = end_of_stack(telling(retention_total, harm))
    evidence = {"retention_total": Quantity(raw, "1")}
    if end_of_stack(at_end(retention_total)) == 0:
        return Flow(0.0, False, {"retention_total": Quantity(0.0, "1")})
    if grad_rms is not None and stream_rms is not None and grad_rms.values.shape[1] == stream_rms.values.shape[1]:
        product = telling(grad_rms, harm) * telling(stream_rms, harm)
        read = product[np.isfinite(product)]
        if len(read) > 1 and read[-1] > 0:
            ratio = float(read[0] / read[-1])
            return Flow(ratio, True, {"scale_free_retention": Quantity(ratio, "1"), **evidence})
    if math.isnan(raw):
        raise CannotJudge("no finite gradient retention was read")
    return Flow(raw, False, evidence)


def worst(
    wiring: Wiring | None, retention: Readings | None, which: Literal["lowest", "highest"], harm: Harm
) -> tuple[str, dict[str, Quantity]]:
    """The join after the first that loses or gains most; the whole stack where no retention per join was read.

    The first is left out: what it shows is the scale of the embeddings.
    """
    row = telling(retention, harm)[1:] if retention is not None else np.empty(0)
    if retention is None or not np.isfinite(row).any():
        return (site(wiring.sublayers) if wiring is not None and wiring.sublayers else "the stack"), {}
    at = int(np.nanargmin(row) if which == "lowest" else np.nanargmax(row))
    where = retention.places[at + 1]
    return f"{span([where.index])} ({where.path})", {f"{which}_retention": Quantity(float(row[at]), "1")}
