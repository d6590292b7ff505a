"""comparison.json: whatever stands in it, reading it gives a record or one line; two writers never share a folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from streamgauge import api
from streamgauge.errors import InputError
from streamgauge.lab import RECORD, Comparison, Record
from streamgauge.lab.record import opened

GOOD: dict[str, Any] = {
    "format": 1,
    "spec": {"schemes": ["none", "pre"], "depth": 1, "lr": 1e-3, "norm": None},
    "corpus": {"corpus": "x", "unigram_entropy": 3.1, "vocab": 256},
    "command": "streamgauge compare",
    "made_at": "2026-01-01T00:00:00+00:00",
    "versions": {"torch": "2"},
    "arms": {"none": {"status": "finished", "note": "", "seconds": 1.5}, "pre": {}},
    "process": {"pid": 1, "host": "elsewhere", "born": 3, "started": 1.0},
}


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


WRONG: dict[str, dict[str, Any]] = {
    "process a list": {"process": [1]},
    "process text": {"process": "me"},
    "process null": {"process": None},
    "no pid": {"process": {"host": "here"}},
    "pid text": {"process": {"pid": "1"}},
    "pid negative": {"process": {"pid": -1}},
    "pid huge": {"process": {"pid": 10**30}},
    "pid a fraction": {"process": {"pid": 1.5}},
    "spec null": {"spec": None},
    "spec a list": {"spec": ["pre"]},
    "spec nested": {"spec": {"depth": nested(50)}},
    "corpus null": {"corpus": None},
    "entropy text": {"corpus": {"unigram_entropy": "high"}},
    "entropy not finite": {"corpus": {"unigram_entropy": float("nan")}},
    "corpus nested": {"corpus": {"corpus": {"a": 1}}},
    "versions a list": {"versions": ["2"]},
    "version a number": {"versions": {"torch": 2}},
    "made_at a number": {"made_at": 3},
    "command null": {"command": None},
    "arms a list": {"arms": ["pre"]},
    "arm null": {"arms": {"pre": None}},
    "arm of unknown status": {"arms": {"pre": {"status": "done"}}},
    "note a number": {"arms": {"pre": {"note": 3}}},
    "seconds text": {"arms": {"pre": {"seconds": "1"}}},
    "unknown field of an arm": {"arms": {"pre": {"speed": 1}}},
    "long name": {"arms": {"a" * 300: {}}},
    "name not UTF-8": {"arms": {"a\udcff": {}}},
    "name outside": {"arms": {"../../home": {}}},
    "name of the folder": {"arms": {"..": {}}},
    "no name": {"arms": {"": {}}},
    "name with a zero": {"arms": {"a\0b": {}}},
    "unknown field": {"folder": "/"},
}


def test_a_good_record_is_read(tmp_path: Path) -> None:
    (tmp_path / RECORD).write_text(json.dumps(GOOD))
    assert list(Record.load(tmp_path).arms) == ["none", "pre"]


@pytest.mark.parametrize("name", WRONG)
def test_a_record_of_the_wrong_shape_is_one_line_and_touches_nothing(name: str, tmp_path: Path) -> None:
    (tmp_path / RECORD).write_text(json.dumps(GOOD | WRONG[name]))
    (tmp_path / "report.html").write_text("as it was")
    for use in (api.load, api.report):
        with pytest.raises(InputError, match=r"comparison\.json: cannot be read .*; delete it, or choose") as caught:
            use(tmp_path)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 600 + len(str(tmp_path))
        str(caught.value).encode()
    assert (tmp_path / "report.html").read_text() == "as it was"


@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"a":' * 100_000, b"\xff\xfe", b"", b"nul"])
def test_a_record_that_is_no_json_is_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / RECORD).write_bytes(content)
    with pytest.raises(InputError, match="cannot be read") as caught:
        Record.load(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_record_that_is_a_pipe_is_one_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / RECORD)
    with pytest.raises(InputError, match="a pipe or a device"):
        Record.load(tmp_path)


def test_a_command_that_is_not_utf_8_can_be_read_back_and_shown(tmp_path: Path) -> None:
    opened(tmp_path, Comparison.of(), {"corpus": "caf\udce9.txt"}, "streamgauge compare --out \udcff", resume=True)
    assert Record.load(tmp_path).command.endswith("\udcff")
    assert "--out \\udcff" in api.report(tmp_path).read_text()


def test_of_processes_that_open_a_folder_at_once_one_wins(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from streamgauge.errors import InputError\n"
        "from streamgauge.lab import Comparison\n"
        "from streamgauge.lab.record import opened\n"
        "print('ready', flush=True)\n"
        "for i in range(20):\n"
        "    sys.stdin.readline()\n"
        "    try: opened(f'{sys.argv[1]}/{i}', Comparison.of(), {}, 'c', True); print('won', flush=True)\n"
        "    except InputError as error: print(error, flush=True)\n"
    )
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    try:
        for process in both:
            assert process.stdout.readline() == "ready\n"
        for i in range(20):
            for process in both:
                process.stdin.write("\n")
                process.stdin.flush()
            said = sorted((process.stdout.readline() for process in both), key=lambda line: line != "won\n")
            assert said[0] == "won\n"
            assert f"{tmp_path / str(i)}: process " in said[1]
            assert "is at work on it; wait for it" in said[1]
    finally:
        for process in both:
            process.communicate()
