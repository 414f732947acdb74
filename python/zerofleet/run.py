"""Runs: starts, follows and reads them. Start with `train` and `Run`."""

from __future__ import annotations

import atexit
import collections
import contextlib
import fcntl
import functools
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import programs, run_directory
from .errors import Error, ProgramError
from .metrics import Lines, Logger, Row, table
from .weights import Weights, of_manifest

Output = bool | Callable[[str], None]
"""True to print the output of a run, or a function that receives each line."""

_DRAIN_SECONDS = 120.0
_POLL_SECONDS = 0.1
_LOG_SECONDS = 1.0
_LINES_KEPT = 500
_NAME = re.compile(r"run (\S+) in ")
_CONSOLE = re.compile(r"console: (https?://\S+)")

_sessions: weakref.WeakSet[_Session] = weakref.WeakSet()


class _Session:
    """A process `zerofleet train`, which drains when the pipe to its standard input closes."""

    def __init__(self, arguments: Sequence[str], runs: pathlib.Path, output: Output) -> None:
        program = str(programs.path("zerofleet"))
        self.command = [program, "train", "--exit-with-parent", "--runs", str(runs), *arguments]
        self.name: str | None = None
        self.console: str | None = None
        self._runs = runs
        self._started = threading.Event()
        self._lines: collections.deque[str] = collections.deque(maxlen=_LINES_KEPT)
        self._sinks: list[Callable[[str], object]] = [print] if output is True else [output] if output else []
        self._fault: BaseException | None = None
        # In another process group, Ctrl-C reaches the process once, from `Run.wait`.
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        _sessions.add(self)
        self._relay = threading.Thread(target=self._relay_output, name="zerofleet-output", daemon=True)
        self._relay.start()
        self._follower: threading.Thread | None = None

    def _relay_output(self) -> None:
        """Reads the output to the end: keeps the last lines, writes them to a file of the run and shows them."""
        assert self.process.stdout is not None
        with contextlib.ExitStack() as stack:
            for line in map(str.rstrip, self.process.stdout):
                self._lines.append(line)
                if self.name is None and (found := _NAME.match(line)):
                    self.name = found[1]
                    with contextlib.suppress(OSError):
                        log = (self._runs / self.name / "logs" / "train.log").open("a", encoding="utf-8")
                        self._sinks.append(functools.partial(print, file=stack.enter_context(log), flush=True))
                    self._started.set()
                if found := _CONSOLE.match(line):
                    self.console = found[1]
                for sink in self._sinks:
                    # The end of a run does not depend on a full disk or on a closed notebook.
                    with contextlib.suppress(Exception):
                        sink(line)
        self._started.set()

    def wait_for_name(self) -> str:
        """Returns the name of the run once it has a directory."""
        self._started.wait()
        if self.name is None:
            self.process.wait()
            self.check()
            raise self._error("the program printed no name of the run")
        return self.name

    def follow(self, file: pathlib.Path, offset: int, logger: Logger) -> None:
        """Calls the logger in a thread for each row of metrics after `offset` bytes, until the session ends."""

        def work() -> None:
            lines, is_over = Lines(file, offset), False
            try:
                with contextlib.ExitStack() as stack:
                    stack.callback(getattr(logger, "close", lambda: None))
                    while not is_over:
                        self._relay.join(_LOG_SECONDS)
                        is_over = not self._relay.is_alive()
                        for row in lines.read():
                            logger(row)
            except BaseException as error:
                self._fault = error

        self._follower = threading.Thread(target=work, name="zerofleet-logger", daemon=True)
        self._follower.start()

    def stop(self, timeout: float) -> None:
        """Drains the session, and kills it after `timeout` seconds."""
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(timeout)
        except BaseException as error:
            self.process.kill()
            self.process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise self._error(f"the run did not drain within {timeout:g} s and was killed") from None
            raise
        finally:
            self.close()

    def close(self) -> None:
        """Joins the threads of a session that has ended."""
        with self.process:
            self._relay.join()
            if self._follower is not None:
                self._follower.join()

    def check(self) -> None:
        """Raises the error of a session that has ended, then the first exception of the logger, once."""
        self.close()
        if self.process.returncode != 0:
            raise self._error(programs.failure("\n".join(self._lines)))
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault

    def _error(self, text: str) -> ProgramError:
        return ProgramError(text, self.command, self.process.returncode)


@atexit.register
def _stop_all() -> None:
    """Drains every session when the interpreter exits."""
    for session in list(_sessions):
        if session.process.poll() is None:
            with contextlib.suppress(Error, OSError):
                session.stop(_DRAIN_SECONDS)


def _forget() -> None:
    """Leaves every session to the parent after a fork: a copy of the pipe would keep the fleet alive."""
    for session in list(_sessions):
        if session.process.stdin is not None:
            session.process.stdin.close()
    _sessions.clear()


os.register_at_fork(after_in_child=_forget)


class Run:
    """A run in a directory: in training, by this or another process, or finished.

    In a `with` statement, the run stops at the end of the block.
    """

    def __init__(self, path_or_name: str | os.PathLike[str], runs: str | os.PathLike[str] = "runs") -> None:
        """Opens an existing run by its directory, or by name in the directory `runs`."""
        given = pathlib.Path(path_or_name)
        is_name = len(given.parts) == 1 and not given.is_absolute() and not (given / "config.toml").is_file()
        self.path = (pathlib.Path(runs) / given if is_name else given).absolute()
        """Directory of the run."""
        self.name = self.path.name
        """Name of the run."""
        self._session: _Session | None = None
        if not (self.path / "config.toml").is_file():
            raise Error(f"no run {self.path.name} in {self.path.parent}")

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def config(self) -> dict[str, Any]:
        """The effective run file: each section by name, with every key."""
        return run_directory.config(self.path)

    @property
    def game(self) -> str:
        """Name of the game."""
        return str(self.config["run"]["game"])

    @property
    def console(self) -> str | None:
        """Address of the web console of the session; `None` without, and before the fleet has started."""
        return self._session.console if self._session else None

    @property
    def is_running(self) -> bool:
        """True while a process trains the run, of this interpreter or not."""
        if self._session is not None and self._session.process.poll() is None:
            return True
        with contextlib.suppress(FileNotFoundError), (self.path / "lock").open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def start(
        self,
        *,
        minutes: float | None = None,
        settings: Mapping[str, object] | None = None,
        console: bool = False,
        logger: Logger | None = None,
        output: Output = False,
    ) -> Run:
        """Resumes training without waiting for the end, and returns this run.

        `minutes` is the length of the run with all earlier sessions. Raises `ProgramError` if another process trains
        the run, or if the run has finished and `minutes` does not extend it.
        """
        arguments = _arguments(settings, console, minutes=minutes, run=self.name)
        self._session = _start(arguments, self.path.parent, self.name, logger, output)[0]
        return self

    def wait(self, timeout: float | None = None) -> Run:
        """Waits until no process trains the run, and returns this run.

        Ctrl-C drains the run and raises `KeyboardInterrupt`. Raises `TimeoutError` after `timeout` seconds, while
        training goes on; `ProgramError` if the session has failed; and the first exception of the logger.
        """
        deadline = time.monotonic() + (math.inf if timeout is None else timeout)
        try:
            while self.is_running:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the run {self.name} trains for longer than {timeout} s")
                time.sleep(_POLL_SECONDS)
        except KeyboardInterrupt:
            if self._session is not None:
                self.stop()
            raise
        if self._session is not None:
            self._session.check()
        return self

    def stop(self, timeout: float = _DRAIN_SECONDS) -> None:
        """Stops training: all processes finish or store the work in progress. Does nothing if the run has ended.

        A run that does not drain within `timeout` seconds is killed, and `ProgramError` is raised; acknowledged games
        and stored checkpoints survive. A run of another process is an `Error`.
        """
        if self._session is not None:
            self._session.stop(timeout)
        if self.is_running:
            raise Error(f"another process trains the run {self.name}: stop it there")

    def metrics(self) -> list[Row]:
        """Returns the rows of metrics so far, oldest first, one every five seconds of training."""
        return Lines(self.path / "metrics.jsonl").read()

    def frame(self, library: str | None = None) -> Any:
        """Returns the numbers of the metrics as a DataFrame of `pandas` or `polars`, one row per reading."""
        return table(self.metrics(), library)

    def summary(self) -> dict[str, Any]:
        """Returns the summary that the last session has written at the end; empty before."""
        return run_directory.read_json(self.path / "summary.json")

    def ratings(self) -> list[dict[str, Any]]:
        """Returns the rated players, versions and fixed opponents, with `player`, `elo`, `low`, `high` and `games`."""
        return list(run_directory.read_json(self.path / "ratings.json").get("ratings", []))

    @property
    def weights(self) -> list[Weights]:
        """The kept weights versions, in ascending order: the latest, and those that the arena keeps."""
        rated = {each["player"]: (each["elo"], each["low"], each["high"]) for each in self.ratings()}
        found = []
        for number, file in run_directory.manifests(self.path).items():
            # A session may have removed the version meanwhile.
            if text := run_directory.read_json(file):
                found.append(of_manifest(text, rated.get(f"v{number}", (None, None, None)), file))
        return found


def train(
    game: object = None,
    *,
    minutes: float | None = None,
    run: str | None = None,
    runs: str | os.PathLike[str] = "runs",
    config: str | os.PathLike[str] | None = None,
    settings: Mapping[str, object] | None = None,
    actors: int | None = None,
    algorithm: str | None = None,
    seed: int | None = None,
    learner: str | None = None,
    console: bool = False,
    wait: bool = True,
    logger: Logger | None = None,
    output: Output = False,
) -> Run:
    """Trains a network in a fleet of processes, as `zerofleet train` does, and returns the run.

    Parameters left out have the defaults of the program: `zerofleet train --help`. An existing `run` resumes.
    `settings` override keys of the run file: `{"learner.batch_size": 512}`. `learner="own"` starts a fleet without
    learner (`serve_weights`). `logger` is called in a thread with each row of metrics; an exception does not end the
    run, but is raised by `wait`. `output=True` prints the lines of the program, which are also in `logs/train.log` of
    the run.

    Waits for the end unless `wait` is false; Ctrl-C drains the run. The fleet ends with this interpreter, at the latest
    when the pipe to the program closes. Raises `ProgramError` with the text of the program if training fails.
    """
    settings = {**(settings or {}), **({} if seed is None else {"run.seed": seed})}
    options = {"minutes": minutes, "run": run, "config": config, "actors": actors, "algorithm": algorithm}
    arguments = _arguments(settings, console, game=getattr(game, "name", game), learner=learner, **options)
    folder = pathlib.Path(runs).absolute()
    session, name = _start(arguments, folder, run, logger, output)
    try:
        started = Run(folder / name)
    except Error:
        # The start failed after the name was printed, and the program removed the directory.
        session.process.wait()
        session.check()
        raise
    started._session = session
    return started.wait() if wait else started


def _start(
    arguments: Sequence[str], runs: pathlib.Path, run: str | None, logger: Logger | None, output: Output
) -> tuple[_Session, str]:
    """Starts a session, and returns it with the name of the run."""
    # A logger gets the rows of this session only.
    file = None if run is None else runs / run / "metrics.jsonl"
    offset = file.stat().st_size if file is not None and file.exists() else 0
    session = _Session(arguments, runs, output)
    try:
        name = session.wait_for_name()
    except KeyboardInterrupt:
        session.stop(_DRAIN_SECONDS)
        raise
    if logger is not None:
        session.follow(runs / name / "metrics.jsonl", offset, logger)
    return session, name


def _arguments(settings: Mapping[str, object] | None, console: bool, **options: object) -> list[str]:
    """Returns the command line; options with `None` are left out."""
    line = [] if console else ["--no-console"]
    for name, value in options.items():
        if value is not None:
            line += [f"--{name}", str(value)]
    for key, value in (settings or {}).items():
        # Text is as on the command line; a list of TOML is also one of JSON.
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=_plain)
        line += ["--set", f"{key}={text}"]
    return line


def _plain(value: Any) -> object:
    """Returns a number of numpy or a path as a value of JSON."""
    return value.item() if hasattr(value, "item") else os.fspath(value)
