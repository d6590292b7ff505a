"""Readings: numbers measured at a place at a step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import with_config

from streamgauge.vocabulary.word import JSON, Word


@with_config(JSON)
@dataclass(frozen=True)
class Place(Word):
    """Where a reading was taken: a sublayer of the wiring, or index -1 for the whole run."""

    index: int
    path: str
    kind: str = "other"

    def __str__(self) -> str:
        return self.path if self.index < 0 else f"{self.index}:{self.path}"


RUN = Place(-1, "run", "run")


@with_config(JSON)
@dataclass(frozen=True)
class Reading(Word):
    """One number measured at one place at one step."""

    step: int
    signal: str
    place: int
    value: float


@dataclass(frozen=True)
class Readings:
    """All values of one signal in a run: `values` float64 [steps, places], NaN where nothing was measured."""

    signal: str
    values: np.ndarray[Any, np.dtype[np.float64]]
    steps: np.ndarray[Any, np.dtype[np.int64]]
    places: tuple[Place, ...]
    unit: str

    def __post_init__(self) -> None:
        if self.values.shape != (len(self.steps), len(self.places)):
            raise ValueError(f"{self.signal}: values {self.values.shape}, {len(self.steps)} steps, {len(self.places)}")

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[Reading]:
        for i, step in enumerate(self.steps):
            for j, place in enumerate(self.places):
                if not np.isnan(self.values[i, j]):
                    yield Reading(int(step), self.signal, place.index, float(self.values[i, j]))

    def to_dict(self) -> dict[str, Any]:
        """Plain values; None where nothing was measured, the name ("inf") of a value that is not finite."""
        values = [
            [None if np.isnan(v) else v if np.isfinite(v) else str(v) for v in row] for row in self.values.tolist()
        ]
        places = [p.to_dict() for p in self.places]
        return {"unit": self.unit, "steps": self.steps.tolist(), "places": places, "values": values}

    @property
    def last(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The values at the last step, [places]."""
        return np.asarray(self.values[-1])

    @property
    def first(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The values at the first step, [places]."""
        return np.asarray(self.values[0])
