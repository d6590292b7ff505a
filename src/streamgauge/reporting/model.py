"""What a report is made from: plain frozen values, filled from stored runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamgauge.vocabulary import Finding, NotAssessed, Readings, Verdict, Wiring


@dataclass(frozen=True)
class Data:
    """The corpus that every arm saw.

    description      one line, for example "Python standard library, bytes, 10.4 MB train / 0.6 MB validation"
    hash             digest of the exact bytes
    unigram_entropy  -sum p log p of the targets, in nat: the loss of a model that knows token frequencies alone
    facts            anything else that names the data (Python version, split, sizes)
    """

    description: str = ""
    hash: str = ""
    unigram_entropy: float | None = None
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Arm:
    """One run of a comparison, as it was stored.

    verdict   will it train, with the reason
    outcome   what was measured in the end, in a word or two ("trains", "stalled"); "" when nothing was measured
    wiring    what was read off the model; None when it was not read
    readings  signal name -> values; places with index -1 belong to the whole run
    findings  root causes first, their consequences inside them
    config    every setting of the run, seeds included
    facts     what is known of the run besides (parameters, seconds, device)
    """

    name: str
    verdict: Verdict
    outcome: str = ""
    wiring: Wiring | None = None
    readings: Mapping[str, Readings] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    not_assessed: tuple[NotAssessed, ...] = ()
    config: Mapping[str, object] = field(default_factory=dict)
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """Everything that one report shows.

    command   the exact command line that makes the runs again
    versions  program -> version
    made_at   when the runs were made, ISO 8601
    """

    title: str
    arms: tuple[Arm, ...] = ()
    command: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    data: Data = field(default_factory=Data)
    made_at: str = ""
