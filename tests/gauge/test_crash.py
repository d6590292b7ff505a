"""A run that is killed leaves a store that opens, and lacks at most what was entered since the last flush."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from streamgauge.gauge import FILE, Store, load_run

WRITER = """
import sys
from streamgauge.gauge import Store
from streamgauge.vocabulary import Place
store = Store(sys.argv[1])
store.declare("loss", "nat", "run")
store.declare("stream_rms", "1", "place")
store.place([Place(k, f"blocks.{k}") for k in range(50)])
step = 0
while True:
    store.add([(step, "loss", -1, float(step)), *((step, "stream_rms", k, float(step)) for k in range(50))])
    store.event(step, "tick", {"step": step})
    store.flush()
    print(step, flush=True)
    step += 1
"""


def killed_after(script: str, folder: Path, lines: int, delay: float) -> int:
    """Run the script, kill it `delay` seconds after that many steps; the last step it reported as done."""
    child = subprocess.Popen([sys.executable, "-c", script, str(folder)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    seen = -1
    for line in child.stdout:
        seen = int(line)
        if seen + 1 >= lines:
            break
    time.sleep(delay)
    os.kill(child.pid, signal.SIGKILL)
    rest = child.stdout.read().split()
    child.wait()
    child.stdout.close()
    return int(rest[-1]) if rest else seen


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_killed_run_opens_with_every_flushed_step(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    last = killed_after(WRITER, tmp_path / "run", draw.randint(1, 300), draw.random() * 0.02)
    stored = load_run(tmp_path / "run")
    loss, rms = stored.readings("loss"), stored.readings("stream_rms")
    assert stored.status == "interrupted"
    assert loss.steps[-1] >= last
    assert loss.values[:, 0].tolist() == [float(step) for step in range(len(loss))]
    assert rms.values.shape == (len(loss), 50)
    assert (rms.values == loss.values).all()
    assert [event.step for event in stored.events("tick")] == loss.steps.tolist()
    with_more = Store(tmp_path / "run", mode="append")
    assert with_more.next_step() == len(loss)
    with_more.close()
    assert load_run(tmp_path / "run").status == "finished"


CREATOR = """
import sys
from pathlib import Path
from streamgauge.gauge.store import _create
for k in range(10**6):
    _create(Path(sys.argv[1]) / str(k) / "run.sqlite")
    print(k, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.0, 0.003])
def test_killed_while_a_store_is_made_there_is_a_whole_one_or_none(tmp_path: Path, delay: float) -> None:
    last = killed_after(CREATOR, tmp_path / "runs", 5, delay)
    made = [run for run in (tmp_path / "runs").iterdir() if (run / FILE).exists()]
    assert len(made) >= last + 1
    for run in made:
        assert load_run(run).readings("loss").values.shape == (0, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "status"),
    [("pass", "finished"), ("raise ValueError('lost')", "interrupted"), ("import os; os._exit(1)", "interrupted")],
)
def test_a_gauge_that_is_never_closed_says_how_the_process_ended(tmp_path: Path, ending: str, status: str) -> None:
    script = "import sys; from streamgauge.gauge import Store\nstore = Store(sys.argv[1])\n" + ending
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "run")], capture_output=True, check=False)
    assert load_run(tmp_path / "run").status == status
