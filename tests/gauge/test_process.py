from __future__ import annotations

import subprocess
import sys
import time

from streamgauge.gauge.process import SILENT_AFTER, alive, this_process


def test_this_process_is_alive() -> None:
    assert alive(this_process(), time.time())


def test_a_process_that_ended_is_not() -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    described = {**this_process(), "pid": child.pid, "born": None}
    child.wait()
    assert not alive(described, time.time())


def test_another_process_with_the_same_number_is_not_the_same() -> None:
    assert not alive({**this_process(), "born": 1}, time.time())


def test_of_another_host_only_the_last_sign_of_life_is_known() -> None:
    elsewhere = {**this_process(), "host": "elsewhere"}
    assert alive(elsewhere, time.time())
    assert not alive(elsewhere, time.time() - SILENT_AFTER - 1)
