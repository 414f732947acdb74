"""Runs of the real programs, where `ZEROFLEET_PROGRAMS` names them. They train for seconds."""

from __future__ import annotations

import json
import pathlib
import time
from collections.abc import Callable
from typing import Any

import pytest

import zerofleet as zf
from zerofleet import programs
from zerofleet.metrics import Row

pytestmark = pytest.mark.usefixtures("real_programs")

DEADLINE = 90.0


def until(condition: Callable[[], Any]) -> None:
    """Waits for a condition."""
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < DEADLINE
        time.sleep(0.05)


def test_a_run_trains_stops_and_resumes(tmp_path: pathlib.Path) -> None:
    rows: list[Row] = []
    lines: list[str] = []
    run = zf.train("tic_tac_toe", minutes=5, runs=tmp_path, seed=3, wait=False, logger=rows.append, output=lines.append)
    assert (run.name, run.game, run.config["run"]["seed"]) == ("tic_tac_toe-1", "tic_tac_toe", 3)
    until(lambda: any(row["steps"] for row in run.metrics()) or not run.is_running)
    with pytest.raises(zf.ProgramError, match="is being trained by process"):
        zf.train(run=run.name, runs=tmp_path)
    assert zf.Run(run.path).is_running
    run.stop()
    run.wait()
    assert rows == run.metrics()
    assert any("draining every process" in line for line in lines)
    assert run.summary()["game"] == "tic_tac_toe"
    listed = json.loads(programs.run(["weights", "ls", "--run", run.name, "--runs", str(tmp_path), "--json"]))
    fields = ("version", "step", "digest", "elo")
    expected = [tuple(each[{"step": "training_step"}.get(name, name)] for name in fields) for each in listed]
    assert [tuple(getattr(each, name) for name in fields) for each in run.weights] == expected
    assert all(each.path.is_file() for each in run.weights)

    trained = run.metrics()[-1]["elapsed_seconds"]
    run.start(minutes=(trained + 3) / 60).wait()
    assert run.metrics()[-1]["elapsed_seconds"] >= trained + 3
    with pytest.raises(zf.ProgramError, match="finished"):
        run.start()


def test_refused_settings_are_errors_that_leave_no_run(tmp_path: pathlib.Path) -> None:
    runs = tmp_path / "runs"
    with pytest.raises(zf.ProgramError, match="did you mean batch_size"):
        zf.train("tic_tac_toe", runs=runs, settings={"learner.bacth_size": 64})
    assert not runs.exists()
