from __future__ import annotations

import pytest

from streamgauge import nn
from streamgauge.errors import InputError
from streamgauge.nn.schemes import choose_scheme


def test_the_names_of_record() -> None:
    assert {"none", "post", "pre", "b2t", "sandwich"} <= set(nn.SCHEMES)
    assert all(name == scheme.name for name, scheme in nn.SCHEMES.items())
    assert all(scheme.norm in nn.NORMS and scheme.init in nn.INITS for scheme in nn.SCHEMES.values())


def test_by_name_or_as_a_value() -> None:
    assert choose_scheme("b2t") == nn.b2t()
    assert choose_scheme(nn.b2t(rescale=True)).options == (("rescale", True),)
    assert str(nn.b2t(rescale=True)) == "b2t(rescale=True)"
    assert str(nn.b2t(rescale=False)) == "b2t"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: choose_scheme("postln"), "unknown scheme 'postln'"),
        (lambda: choose_scheme(None), "scheme must be a name or a Scheme"),
        (lambda: nn.b2t(rescal=True), "did you mean 'rescale'"),
        (lambda: nn.b2t(True), "by name"),
        (lambda: nn.b2t(rescale=2), "True or False"),
        (lambda: nn.pre(rescale=True), "has no options"),
    ],
)
def test_what_cannot_be_used_is_refused(call: object, says: str) -> None:
    with pytest.raises(InputError, match=says):
        call()
