"""How numbers and other values are written for a reader."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from streamgauge.vocabulary import Quantity

MISSING = "–"


def shown(value: object, digits: int = 4) -> str:
    """A value as short text: four significant digits, "–" for None, "not finite (nan)" said in words.

    >>> shown(0.000012346), shown(2.5), shown(None), shown(float("inf")), shown(1234567)
    ('1.235e-5', '2.5', '–', 'not finite (inf)', '1,234,567')
    """
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if not math.isfinite(value):
            return f"not finite ({value})"
        if value == int(value) and abs(value) < 10_000:
            return str(int(value))
        if 10_000 <= abs(value) < 1e7:
            return f"{value:,.0f}"
        mantissa, _, exponent = f"{value:.{digits}g}".partition("e")
        return f"{mantissa}e{int(exponent)}" if exponent else mantissa
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={shown(entry)}" for key, entry in value.items()) or MISSING
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return ", ".join(shown(entry) for entry in value) or MISSING
    return str(value)


def fixed(value: float | None, digits: int = 3, sign: bool = False) -> str:
    """A number with a fixed count of decimals, so that a column of them lines up; with its sign where `sign`.

    >>> fixed(3.2), fixed(-0.03, sign=True), fixed(None)
    ('3.200', '-0.030', '–')
    """
    if value is None or not math.isfinite(value):
        return shown(value)
    return f"{value:{'+' if sign else ''}.{digits}f}"


def when(text: str) -> str:
    """A moment in ISO 8601 to the minute, in UTC where it names its zone; any other text as it is."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    zoned = moment.tzinfo is not None
    return f"{moment.astimezone(UTC) if zoned else moment:%Y-%m-%d %H:%M}{' UTC' if zoned else ''}"


def counted(many: int, noun: str) -> str:
    """A count with its noun: "1 error", "2 errors"; "info" has no plural."""
    return f"{many} {noun}" if many == 1 or noun == "info" else f"{many} {noun}s"


def evidence(quantity: Quantity) -> tuple[str, str]:
    """The value and the unit of a quantity; a pure number has no unit to show."""
    value = quantity.value
    if value in ("nan", "inf", "-inf"):
        value = float(str(value))
    return shown(value), "" if quantity.unit == "1" else quantity.unit


def printable(text: object) -> str:
    """Text with control characters made visible, so that a hostile name cannot steer a terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in str(text))
