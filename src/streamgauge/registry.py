"""A table of named things whose misspelt look-up says what was meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from streamgauge.errors import unknown

T = TypeVar("T")


class Registry(Mapping[str, T]):
    """An ordered name -> entry table.

    Curated literature fills it with an explicit dict (`Registry("norm", {...})`); many small self-describing things
    enter through `add`, called by the decorator that stands beside them. A name is registered once.
    """

    def __init__(self, what: str, entries: Mapping[str, T] | None = None) -> None:
        self.what = what
        self._entries: dict[str, T] = dict(entries or {})

    def add(self, name: str, entry: T) -> T:
        if name in self._entries:
            raise ValueError(f"{self.what} {name!r} is registered twice")
        self._entries[name] = entry
        return entry

    def __getitem__(self, name: str) -> T:
        try:
            return self._entries[name]
        except KeyError:
            raise unknown(self.what, name, self._entries) from None

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def get(self, name: str, default: T | None = None) -> T | None:  # type: ignore[override]
        return self._entries.get(name, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
