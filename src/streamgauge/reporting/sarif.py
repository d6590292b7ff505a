"""A check as a SARIF log, for code scanning and editors."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from streamgauge.rules import Rule, catalogue
from streamgauge.vocabulary import Finding, NotAssessed, Severity

if TYPE_CHECKING:
    from streamgauge.preflight import CheckResult

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LEVELS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "note"}


def to_sarif(result: CheckResult) -> str:
    """SARIF 2.1.0 (OASIS, errata 01) of one check: every rule with its text, and one result per root finding.

    level          error, warning, and note for info
    locations      logical: the module paths that the finding's place names; physical: the Python file where the target
                   is a script or `file.py:factory`, at the line that defines the factory or the model's class, else 1
    relatedLocations, properties.consequences   what the finding explains
    invocations    the rules that could not judge, as notifications with their reasons
    """
    from streamgauge import __version__

    rules = catalogue()
    index = {rule.code: i for i, rule in enumerate(rules)}
    physical = _physical(result.target)
    driver = {"name": "streamgauge", "semanticVersion": __version__, "rules": [_descriptor(rule) for rule in rules]}
    run = {
        "tool": {"driver": driver},
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [_notification(n, index) for n in result.not_assessed],
            }
        ],
        "results": [_result(finding, index, physical) for finding in result.findings],
        "columnKind": "unicodeCodePoints",
        "properties": {"target": result.target, "verdict": result.answer.to_dict(), "notes": list(result.notes)},
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, allow_nan=False)


def _descriptor(rule: Rule) -> dict[str, Any]:
    sections = rule.text.sections
    markdown = "\n\n".join(f"**{heading}**\n\n{body}" for heading, body in sections.items())
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": rule.text.summary},
        "fullDescription": {"text": _line(sections["What it does"])},
        "help": {"text": str(rule.text), "markdown": markdown},
        "properties": {"family": rule.family, "thresholds": dict(rule.thresholds)},
    }


def _result(finding: Finding, index: dict[str, int], physical: dict[str, Any] | None) -> dict[str, Any]:
    told = f"{finding.message}. Fix: {finding.fix}" if finding.fix else finding.message
    below = [_below(consequence) for consequence in finding.consequences]
    related = [_location(c, physical, i, f"explains {c.name}: ") for i, c in enumerate(finding.consequences, 1)]
    entry: dict[str, Any] = {
        "ruleId": finding.code,
        "level": LEVELS[finding.severity],
        "message": {"text": told},
        "locations": [_location(finding, physical)],
        "partialFingerprints": {"ruleAndPlace/v1": _digest(finding.code, finding.place)},
        "properties": {**_grounds(finding), "consequences": below},
    }
    if finding.code in index:
        entry["ruleIndex"] = index[finding.code]
    if related:
        entry["relatedLocations"] = related
    return entry


def _below(finding: Finding) -> dict[str, Any]:
    told = {"code": finding.code, "name": finding.name, "level": LEVELS[finding.severity], "place": finding.place}
    return {**told, "message": finding.message, **_grounds(finding)}


def _grounds(finding: Finding) -> dict[str, Any]:
    evidence = {name: {"value": q.value, "unit": q.unit} for name, q in finding.evidence.items()}
    return {"evidence": evidence, "cause": finding.cause, "fix": finding.fix, "source": finding.source}


def _location(
    finding: Finding, physical: dict[str, Any] | None, number: int | None = None, before: str = ""
) -> dict[str, Any]:
    logical = [{"fullyQualifiedName": path, "kind": "module"} for path in paths_of(finding.place)]
    told = f"{before}{finding.message}" if before else finding.place
    location: dict[str, Any] = {"logicalLocations": logical, "message": {"text": told}}
    if number is not None:
        location["id"] = number
    if physical is not None:
        location["physicalLocation"] = physical
    return location


def paths_of(place: str) -> list[str]:
    """Module paths in a finding's place: "sublayers 0-3 (h.0.attn to h.1.mlp)" names two; else the place itself."""
    inside = re.findall(r"\(([^()]*)\)", place)
    words = [word.removesuffix(" first") for text in inside or [place] for word in re.split(r" to |, ", text)]
    paths = [word for word in words if re.fullmatch(r"\w+(\.\w+)*", word) and not word.isdigit()]
    return paths or [place]


def _physical(target: str) -> dict[str, Any] | None:
    """Where the file is that a target like `models.py:build`, or "train.py: Decoder", names."""
    match = re.fullmatch(r"(?P<file>.+?\.pyw?)(:\s*(?P<name>.*))?", target)
    if match is None:
        return None
    path = Path(match["file"])
    uri = path.as_uri() if path.is_absolute() else quote(path.as_posix())
    return {"artifactLocation": {"uri": uri}, "region": {"startLine": _starts(path, match["name"] or "")}}


def _starts(path: Path, name: str) -> int:
    """The line, from 1, that defines the name in the file; 1 where there is none."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return 1
    opening = re.compile(rf"\s*(?:(?:def|class)\s+{re.escape(name)}\b|{re.escape(name)}\s*=)") if name else None
    return next((i for i, line in enumerate(lines, 1) if opening is not None and opening.match(line)), 1)


def _notification(entry: NotAssessed, index: dict[str, int]) -> dict[str, Any]:
    rule: dict[str, Any] = {"id": entry.code}
    if entry.code in index:
        rule["index"] = index[entry.code]
    return {"level": "note", "message": {"text": f"not assessed: {entry.reason}"}, "associatedRule": rule}


def _line(text: str) -> str:
    return " ".join(text.split())


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
