"""Runs that a scripted program trains, and files of runs."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import zerofleet as zf
from zerofleet.run import _arguments

Program = Callable[..., pathlib.Path]

DEADLINE = 30.0

# Trains until standard input closes, SIGINT arrives or `--minutes` have passed, with a row of metrics per reading.
TRAIN = """
import fcntl, json, pathlib, signal, sys, threading, time
arguments = sys.argv[1:]
value = lambda name, default=None: arguments[arguments.index(name) + 1] if name in arguments else default
run = pathlib.Path(value("--runs")) / value("--run", "tic_tac_toe-1")
(run / "logs").mkdir(parents=True, exist_ok=True)
lock = (run / "lock").open("w")
fcntl.flock(lock, fcntl.LOCK_EX)
print("process", __import__("os").getpid(), end="", file=lock, flush=True)
(run / "config.toml").write_text('[run]\\ngame = "tic_tac_toe"\\nseed = 1\\n')
print("run", run.name, "in", run, flush=True)
print("console: http://127.0.0.1:7080", flush=True)
(run / "arguments.json").write_text(json.dumps(arguments))
stop = threading.Event()
signal.signal(signal.SIGINT, lambda *_: stop.set())
threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
begin, steps = time.monotonic(), 0
while not stop.is_set() and time.monotonic() - begin < 60 * float(value("--minutes", 15)):
    steps += 1
    row = {"steps": steps, "unix_seconds": float(steps), "accuracy": {"raw": 0.5}, "elo": None}
    with (run / "metrics.jsonl").open("a") as file:
        print(json.dumps(row), file=file)
    time.sleep(0.05)
(run / "drained").touch()
print("drained", flush=True)
"""


def until(condition: Callable[[], Any]) -> None:
    """Waits for a condition."""
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < DEADLINE
        time.sleep(0.01)


def test_a_run_trains_to_the_end_with_the_arguments(program: Program, tmp_path: pathlib.Path) -> None:
    program(TRAIN)
    lines: list[str] = []
    run = zf.train(
        "tic_tac_toe",
        minutes=0.005,
        runs=tmp_path,
        seed=7,
        actors=2,
        algorithm="gumbel-alphazero",
        learner="own",
        settings={"learner.batch_size": 64},
        output=lines.append,
    )
    assert (run.name, run.game, run.is_running) == ("tic_tac_toe-1", "tic_tac_toe", False)
    arguments = " ".join(json.loads((run.path / "arguments.json").read_text()))
    for part in [
        "train --exit-with-parent --runs",
        "--no-console",
        "--game tic_tac_toe",
        "--minutes 0.005",
        "--actors 2",
        "--algorithm gumbel-alphazero",
        "--learner own",
        "--set learner.batch_size=64 --set run.seed=7",
        f"--runs {tmp_path}",
    ]:
        assert part in arguments
    assert lines[0].startswith("run tic_tac_toe-1 in ")
    assert (run.path / "logs" / "train.log").read_text().splitlines() == lines
    assert run.metrics()[0]["steps"] == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (3, "3"),
        (1e-5, "1e-05"),
        (np.float32(0.5), "0.5"),
        ("cpu", "cpu"),
        ("", ""),
        ((1, "é", False), '[1, "é", false]'),
        (pathlib.PurePosixPath("/a"), '"/a"'),
    ],
)
def test_settings_are_written_as_toml(value: object, text: str) -> None:
    assert _arguments({"a.b": value}, True, actors=None) == ["--set", f"a.b={text}"]


def test_a_failing_start_raises_the_text_and_leaves_nothing(program: Program, tmp_path: pathlib.Path) -> None:
    reason = "error: --game golf: unknown game"
    program(f"import sys; print('odd', flush=True); print({reason!r}, file=sys.stderr); sys.exit(2)")
    with pytest.raises(zf.ProgramError) as raised:
        zf.train("golf", runs=tmp_path / "runs", wait=False)
    assert str(raised.value) == "--game golf: unknown game"
    assert raised.value.returncode == 2
    assert not (tmp_path / "runs").exists()


def test_a_run_that_fails_later_raises_when_it_is_waited_for(program: Program, tmp_path: pathlib.Path) -> None:
    program(TRAIN.replace('print("drained"', "sys.exit('error: learner was refused')\nprint(\"drained\""))
    run = zf.train(runs=tmp_path, minutes=0.005, wait=False)
    for _ in range(2):
        with pytest.raises(zf.ProgramError, match=r"^learner was refused$"):
            run.wait()


def test_a_run_stops_and_resumes_and_its_logger_gets_the_new_rows(program: Program, tmp_path: pathlib.Path) -> None:
    program(TRAIN)
    seen: list[int] = []
    with zf.train(runs=tmp_path, wait=False, console=True) as run:
        until(lambda: len(run.metrics()) > 3)
        assert run.is_running
        assert zf.Run(run.path).is_running, "another object sees the lock"
        assert run.console == "http://127.0.0.1:7080"
    assert not run.is_running
    assert (run.path / "drained").exists()
    before = len(run.metrics())
    run.start(minutes=0.01, logger=lambda row: seen.append(row["steps"])).wait()
    rows = run.metrics()[before:]
    assert seen == [row["steps"] for row in rows]
    assert seen[0] == 1


def test_a_logger_that_raises_does_not_end_the_run_and_is_closed(program: Program, tmp_path: pathlib.Path) -> None:
    program(TRAIN)

    class Logger:
        calls, is_closed = 0, False

        def __call__(self, row: dict[str, Any]) -> None:
            self.calls += 1
            raise RuntimeError("the disk of the logger is full")

        def close(self) -> None:
            self.is_closed = True

    logger = Logger()
    run = zf.train(runs=tmp_path, minutes=0.03, wait=False, logger=logger)
    with pytest.raises(RuntimeError, match="disk of the logger"):
        run.wait()
    assert (logger.calls, logger.is_closed) == (1, True)
    assert (run.path / "drained").exists()
    run.wait()


def test_waiting_has_a_time_limit(program: Program, tmp_path: pathlib.Path) -> None:
    program(TRAIN)
    with zf.train(runs=tmp_path, wait=False) as run, pytest.raises(TimeoutError):
        run.wait(timeout=0.05)


def test_a_run_that_does_not_drain_is_killed(program: Program, tmp_path: pathlib.Path) -> None:
    program(TRAIN.replace("lambda *_: stop.set()", "signal.SIG_IGN").replace("sys.stdin.read()", "stop.wait()"))
    run = zf.train(runs=tmp_path, wait=False)
    until(lambda: run.metrics())
    with pytest.raises(zf.ProgramError, match=r"did not drain within 0\.1 s"):
        run.stop(timeout=0.1)
    assert not run.is_running


def test_a_run_of_another_process_is_waited_for_but_not_stopped(program: Program, tmp_path: pathlib.Path) -> None:
    path = program(TRAIN)
    command = [str(path), "train", "--runs", str(tmp_path), "--run", "first"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        until(lambda: (tmp_path / "first" / "metrics.jsonl").exists())
        run = zf.Run("first", runs=tmp_path)
        assert run.is_running
        with pytest.raises(TimeoutError):
            run.wait(timeout=0.05)
        with pytest.raises(zf.Error, match="another process trains the run first"):
            run.stop()
        process.stdin.close()
        run.wait()
        assert (run.path / "drained").exists()


SCRIPT = """
import zerofleet as zf
run = zf.train(runs={runs!r}, wait=False)
while not run.metrics():
    pass
print("ready", flush=True)
{action}
"""


@pytest.mark.parametrize(
    ("action", "killed_by"),
    [
        ("run.wait()", signal.SIGINT),
        ("run.wait()", signal.SIGKILL),
        ("pass", None),
        ("import os; os.fork() or __import__('time').sleep(60); run.wait()", signal.SIGKILL),
    ],
)
def test_the_fleet_ends_with_the_interpreter(
    program: Program, tmp_path: pathlib.Path, action: str, killed_by: signal.Signals | None
) -> None:
    program(TRAIN)
    script = SCRIPT.format(runs=str(tmp_path), action=action)
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        if killed_by is not None:
            process.send_signal(killed_by)
        try:
            process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        run = zf.Run("tic_tac_toe-1", runs=tmp_path)
        until(lambda: (run.path / "drained").exists())
        until(lambda: not run.is_running)
        # A forked child may be left.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        assert process.stderr is not None
        if killed_by == signal.SIGINT:
            assert "KeyboardInterrupt" in process.stderr.read()


def written(tmp_path: pathlib.Path) -> zf.Run:
    """Writes the files of a run without a session."""
    run = tmp_path / "first"
    for folder in ("weights", "arena"):
        (run / folder).mkdir(parents=True)
    (run / "config.toml").write_text('[run]\ngame = "hex-5"\n')
    rows = ['{"steps": 1, "unix_seconds": 5.0}', '{"steps": 2, "un', "", '{"steps": 3, "unix_seconds": 7.0}', '{"ste']
    (run / "metrics.jsonl").write_text("\n".join(rows))
    for folder, version in [("arena", 2), ("arena", 9), ("weights", 9)]:
        text = {"version": version, "training_step": 10 * version, "digest": "ab" * 32, "size_bytes": 5}
        (run / folder / f"v{version:06}.json").write_text(json.dumps(text))
    rating = {"player": "v9", "elo": 700.0, "low": 600.0, "high": 800.0, "games": 4}
    (run / "ratings.json").write_text(json.dumps({"format": 2, "game": "hex-5", "ratings": [rating], "results": []}))
    return zf.Run("first", runs=tmp_path)


def test_damaged_and_incomplete_rows_are_left_out(tmp_path: pathlib.Path) -> None:
    run = written(tmp_path)
    assert [row["steps"] for row in run.metrics()] == [1, 3]


def test_versions_are_those_of_learner_and_arena_with_ratings(tmp_path: pathlib.Path) -> None:
    run = written(tmp_path)
    first, last = run.weights
    assert (first.version, first.step, first.elo) == (2, 20, None)
    assert first.path == run.path / "arena" / "v000002.safetensors"
    assert (last.version, last.elo, last.elo_low, last.elo_high) == (9, 700.0, 600.0, 800.0)
    assert last.manifest == run.path / "weights" / "v000009.json"
    assert run.ratings()[0]["player"] == "v9"
    assert run.summary() == {}
    assert run.config == {"run": {"game": "hex-5"}}


def test_a_missing_run_is_an_error(tmp_path: pathlib.Path) -> None:
    with pytest.raises(zf.Error, match="no run second in "):
        zf.Run("second", runs=tmp_path)


@pytest.mark.parametrize("library", ["polars", "pandas"])
def test_metrics_become_a_table_with_one_column_per_number(tmp_path: pathlib.Path, library: str) -> None:
    pytest.importorskip(library)
    run = written(tmp_path)
    frame = run.frame(library)
    assert (frame.shape, list(frame["steps"])) == ((2, 2), [1.0, 3.0])
    with pytest.raises(ValueError, match="pandas or polars"):
        run.frame("arrow")
