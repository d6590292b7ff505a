"""The verbs `watch`, `compare`, `load` and `report`: where stored readings meet the rules and the page."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn
from torch.optim import Optimizer

from streamgauge import gauge, lab
from streamgauge.errors import InputError
from streamgauge.gauge.schema import FILE
from streamgauge.gauge.store import Mode
from streamgauge.reporting import Arm, Data, Report, render
from streamgauge.reporting.file import check_page
from streamgauge.rules import Evidence, Examination, Outcome, examine, outcome
from streamgauge.rules.evidence import FACTS
from streamgauge.vocabulary import Answer, Finding, Readings, Verdict

ANSWERS: dict[str, Answer] = {
    "trains": "trains",
    "degraded": "trains",
    "slow": "at risk",
    "undecided": "not assessed",
    "stalled": "will not train",
    "diverged": "will not train",
}


class Run(gauge.StoredRun):
    """A stored run, with what the rules say about it. Under way, finished, or left behind by a killed process."""

    def __repr__(self) -> str:
        losses = self.readings("loss") if "loss" in self.signals else ()
        return f"Run({str(self.path or 'in memory')!r}, {self.status}, {len(losses)} steps, {self.wiring})"

    def evidence(self) -> Evidence:
        """Wiring, readings and facts, as the rules ask for them."""
        facts = {name: fact for name, fact in self.facts.items() if name in FACTS}
        return Evidence(self.wiring, self.all_readings(), facts | {"phase": "run"})

    def all_readings(self) -> dict[str, Readings]:
        """Signal -> readings, of every signal that was measured."""
        return {name: self.readings(name) for name in self.signals}

    def examine(self, select: Iterable[str] = (), ignore: Iterable[str] = ()) -> Examination:
        """Findings, what was not assessed and why, and the rules that passed."""
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                return examine(self.evidence(), select, ignore)
        except ArithmeticError as error:
            where = f"{self.path}: " if self.path is not None else ""
            raise InputError(f"{where}the readings are too large or too small to be judged ({error})") from None

    def findings(self) -> list[Finding]:
        """Root cause first; what a finding explains hangs under it in `consequences`."""
        return list(self.examine().findings)

    def outcome(self) -> Outcome | None:
        """How the run ended: diverged, stalled, slow, trains. None where fewer than two losses were recorded."""
        readings = self.all_readings()
        loss = readings.get("loss")
        if loss is None or len(loss) < 2:
            return None
        return outcome(loss, val_loss=readings.get("val_loss"), unigram_entropy=self.facts.get("unigram_entropy"))

    def verdict(self) -> Verdict:
        """The answer that the outcome gives, with its reason and its first cause."""
        return _verdict(self.outcome(), self.findings())


class Comparison:
    """A folder of runs made on identical batches: `arms` name -> Run, for the arms that have a store.

    `unreadable` name -> why, for the arms whose store is damaged.
    """

    def __init__(self, path: str | Path) -> None:
        self.record = lab.Record.load(path)
        self.path = self.record.folder
        self.arms: dict[str, Run] = {}
        self.unreadable: dict[str, str] = {}
        for name in self.record.arms:
            if (self.record.run(name) / FILE).exists():
                try:
                    self.arms[name] = _run(self.record.run(name))
                except InputError as error:
                    self.unreadable[name] = str(error)

    def __repr__(self) -> str:
        return f"Comparison({str(self.path)!r}, {len(self.record.arms)} arms: {', '.join(self.record.arms)})"

    @property
    def failed(self) -> dict[str, str]:
        """The arms that could not be run to their end, and why."""
        return {name: arm.note for name, arm in self.record.arms.items() if arm.status == "failed"}

    def report(self) -> Report:
        """Everything that the page shows, from the stored values."""
        data = dict(self.record.corpus)
        return Report(
            title=self.path.name,
            arms=tuple(self._arm(name) for name in self.record.arms),
            command=self.record.command,
            versions=self.record.versions,
            data=_data(data),
            made_at=self.record.made_at,
        )

    def _arm(self, name: str) -> Arm:
        entry = self.record.arms[name]
        if name in self.arms:
            return _arm(name, self.arms[name], seconds=entry.seconds)
        if name in self.unreadable:
            return Arm(name, Verdict("not assessed", self.unreadable[name]))
        return Arm(name, Verdict("not assessed", entry.note or f"{entry.status}, no readings"))


def load(path: str | Path) -> Run | Comparison:
    """A run's folder, or a comparison's (its `arms` are runs). InputError, one line, where there is neither."""
    return Comparison(path) if (Path(path) / lab.RECORD).exists() else _run(path)


class Watch(gauge.Gauge):
    """A gauge on a training run whose readings the rules can judge at any time."""

    @property
    def recorded(self) -> Run:
        """The run so far, to be read and judged like a stored one."""
        return Run(self.store.folder, self._connect)

    def findings(self) -> list[Finding]:
        """What the rules say about the run so far, root cause first."""
        return self.recorded.findings()


def watch(
    model: nn.Module,
    optimizer: Optimizer | None = None,
    *,
    run: str | Path | None = None,
    every: int = 50,
    facts: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    mode: Mode = "new",
    start: int | None = None,
) -> Watch:
    """Watch a training loop: `gauge.step(loss)` after `loss.backward()`, before `optimizer.step()`.

        with sg.watch(model, optimizer, run="runs/name", every=50) as gauge:
            for batch in batches:
                loss = loss_fn(model, batch)
                optimizer.zero_grad(); loss.backward()
                gauge.step(loss)
                optimizer.step()
        gauge.findings()

    run      folder that gets `run.sqlite`; None keeps the readings in memory
    every    steps between two sampled steps; loss, learning rate and gradient norm are recorded at every step
    facts    what the rules may use beside the readings, for example unigram_entropy (nat) and vocab
    config   settings to store with the run
    mode     "new", "append" or "replace": what to do with a folder that holds a run; start as in `gauge.Gauge`
    """
    return Watch(model, optimizer, run=run, every=every, facts=facts, config=config, mode=mode, start=start)


def compare(
    spec: str | Path | None,
    out: str | Path,
    *,
    preset: str | None = None,
    workers: int | None = None,
    progress: bool = True,
    command: str | None = None,
    **settings: Any,
) -> Comparison:
    """Train schemes side by side on identical batches, judge each arm, write OUT/report.html.

    spec        a TOML file of settings, or None
    preset      the name of a ready comparison (`lab.PRESETS`); `settings` win over it, as they win over a file
    settings    the fields of `lab.Config`, and the axes schemes, norms, inits, depths, lrs, seeds

    A comparison that was stopped goes on where it was. Raises InputError with nothing written when it cannot start.
    """
    settings = {name: value for name, value in settings.items() if value is not None}
    if preset is not None:
        comparison = lab.Comparison.of(lab.PRESETS[preset].to_dict(), **settings)
    elif spec is not None:
        comparison = lab.Comparison.from_toml(spec, **settings)
    else:
        comparison = lab.Comparison.of(settings)
    if preset is not None and not settings:
        command = command or shlex.join(["streamgauge", "compare", "--preset", preset, "--out", os.fspath(out)])
    folder = lab.compare(comparison, out, workers=workers, progress=progress, command=command)
    result = Comparison(folder)
    for name, run in result.arms.items():
        with suppress(InputError):  # the report says of such an arm why it is not assessed
            gauge.write_findings(result.record.run(name), run.findings())
    report(folder)
    return result


def report(path: str | Path, out: str | Path | None = None) -> Path:
    """Write the report of a run or a comparison as one HTML file; returns its path (default: in the folder).

    Of files that exist, only a report is written over. A damaged run is an InputError; a damaged arm of a comparison
    is shown as not assessed.
    """
    loaded = load(path)
    content = loaded.report() if isinstance(loaded, Comparison) else _single(loaded)
    file = Path(out) if out is not None else _folder(Path(path)) / "report.html"
    check_page(file)
    try:
        file.write_text(render(content), encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise InputError(f"{file}: {(error.strerror or str(error)).lower()}; choose another place with --out") from None
    return file


def _run(path: str | Path) -> Run:
    stored = gauge.load_run(path)
    lab.check_intact(stored)
    return Run(stored.path, stored.connect)


def _folder(path: Path) -> Path:
    return path if path.is_dir() else path.parent


def _single(run: Run) -> Report:
    name = run.path.name if run.path is not None else "run"
    facts = run.facts
    return Report(
        title=name,
        arms=(_arm(name, run),),
        command=str(facts.get("command", "")),
        versions=run.versions,
        data=_data(facts),
        made_at=str(run.meta.get("started", "")),
    )


def _arm(name: str, run: Run, seconds: float | None = None) -> Arm:
    facts = dict(run.facts) | ({} if seconds is None else {"cpu_seconds": seconds}) | {"status": run.status}
    settings = {name: facts.get(name) if value is None else value for name, value in run.config.items()}
    try:
        examination, ended = run.examine(), run.outcome()
    except InputError as error:
        judged = Verdict("not assessed", str(error))
        return Arm(name, judged, wiring=run.wiring, readings=run.all_readings(), config=settings, facts=facts)
    return Arm(
        name,
        _verdict(ended, examination.findings),
        ended.label if ended is not None else "",
        run.wiring,
        run.all_readings(),
        examination.findings,
        examination.not_assessed,
        settings,
        facts,
    )


def _verdict(ended: Outcome | None, findings: Iterable[Finding]) -> Verdict:
    if ended is None:
        return Verdict("not assessed", "fewer than two losses were recorded")
    cause = next((f.name for f in findings if f.severity != "info"), None)
    return Verdict(ANSWERS[ended.label], f"{cause}: {ended.reason}" if cause else ended.reason)


def _data(facts: Mapping[str, Any]) -> Data:
    entropy = facts.get("unigram_entropy")
    return Data(
        str(facts.get("corpus", "")),
        str(facts.get("corpus_sha256", "")),
        float(entropy) if entropy is not None else None,
        {key: facts[key] for key in facts if key.startswith("corpus_") and key != "corpus_sha256"},
    )
