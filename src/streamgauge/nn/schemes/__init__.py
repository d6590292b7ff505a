"""The published schemes: each a value that builds its joins and says where it comes from and when to use it."""

from __future__ import annotations

from streamgauge.errors import InputError
from streamgauge.nn.schemes.base import Scheme
from streamgauge.nn.schemes.classic import b2t, none, post, pre, sandwich
from streamgauge.registry import Registry

SCHEMES: Registry[Scheme] = Registry(
    "scheme",
    {
        "none": none(),
        "post": post(),
        "pre": pre(),
        "b2t": b2t(),
        "sandwich": sandwich(),
    },
)


def choose_scheme(scheme: str | Scheme) -> Scheme:
    """The scheme of that name, or the scheme itself."""
    if isinstance(scheme, Scheme):
        return scheme
    if not isinstance(scheme, str):
        raise InputError(f"scheme must be a name or a Scheme such as nn.b2t(rescale=True), not {scheme!r}")
    return SCHEMES[scheme]


__all__ = ["SCHEMES", "Scheme", "b2t", "choose_scheme", "none", "post", "pre", "sandwich"]
