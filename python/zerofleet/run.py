"""Runs: starts, follows and reads them. Start with `train` and `Run`."""

from __future__ import annotations

import atexit
import collections
import contextlib
import importlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import programs
from .errors import Error, ProgramError
from .metrics import Lines, Logger, Row, later, table
from .weights import Weights, of_manifest

if TYPE_CHECKING:
    from types import TracebackType

Output = bool | Callable[[str], None]
"""True to print the output of a run, or a function that receives each line."""

_DRAIN_SECONDS = 120.0
_POLL_SECONDS = 0.2
_LOG_SECONDS = 1.0
_LINES_KEPT = 500
_NAME = re.compile(r"run (\S+) in ")
_CONSOLE = re.compile(r"console: (https?://\S+)")

_sessions: weakref.WeakSet[_Session] = weakref.WeakSet()


class _Session:
    """A process `zerofleet train`, which drains when the pipe to its standard input closes."""

    def __init__(self, arguments: Sequence[str], runs: pathlib.Path, output: Output) -> None:
        self.command = [str(programs.path("zerofleet")), "train", "--exit-with-parent", *arguments]
        self.name: str | None = None
        self.console: str | None = None
        self._runs = runs
        self._output = output
        self._started = threading.Event()
        self._ended = threading.Event()
        self._lines: collections.deque[str] = collections.deque(maxlen=_LINES_KEPT)
        self._follower: threading.Thread | None = None
        self._fault: BaseException | None = None
        # In another process group, Ctrl-C reaches the process once, from `Run.wait`.
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            bufsize=0,
        )
        _sessions.add(self)
        self._relay = threading.Thread(target=self._relay_output, name="zerofleet-output", daemon=True)
        self._relay.start()

    def _relay_output(self) -> None:
        """Reads the output to the end: keeps the last lines, writes them to a file of the run and shows them."""
        assert self.process.stdout is not None
        with contextlib.ExitStack() as stack, open(self.process.stdout.fileno(), "rb", closefd=False) as output:
            file = None
            for line in (raw.decode(errors="replace").rstrip() for raw in output):
                self._lines.append(line)
                if self.name is None and (found := _NAME.match(line)):
                    self.name = found[1]
                    with contextlib.suppress(OSError):
                        log = self._runs / self.name / "logs" / "train.log"
                        file = stack.enter_context(log.open("a", encoding="utf-8"))
                    self._started.set()
                if found := _CONSOLE.match(line):
                    self.console = found[1]
                # The end of a run does not depend on a full disk or on a closed notebook.
                with contextlib.suppress(Exception):
                    if file is not None:
                        print(line, file=file, flush=True)
                with contextlib.suppress(Exception):
                    if self._output:
                        (print if self._output is True else self._output)(line)
        self._started.set()
        self._ended.set()

    def wait_for_name(self) -> str:
        """Returns the name of the run once it has a directory."""
        while not self._started.wait(_POLL_SECONDS):
            pass
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
                while not is_over:
                    is_over = self._ended.wait(_LOG_SECONDS)
                    for row in lines.read():
                        logger(row)
            except BaseException as error:
                self._fault = error
            finally:
                if close := getattr(logger, "close", None):
                    try:
                        close()
                    except BaseException as error:
                        self._fault = self._fault or error

        self._follower = threading.Thread(target=work, name="zerofleet-logger", daemon=True)
        self._follower.start()

    def stop(self, timeout: float) -> None:
        """Drains the session, and kills it after `timeout` seconds."""
        if os.name == "nt" and self.process.stdin is not None:
            self.process.stdin.close()
        else:
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
        self._relay.join()
        if self._follower is not None:
            self._follower.join()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

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


atexit.register(_stop_all)
if hasattr(os, "register_at_fork"):
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
        self._session: _Session | None = None
        if not (self.path / "config.toml").is_file():
            raise Error(f"no run {self.path.name} in {self.path.parent}")

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.path.name

    @property
    def config(self) -> dict[str, Any]:
        """The effective run file: each section by name, with every key."""
        toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
        return dict(toml.loads((self.path / "config.toml").read_text(encoding="utf-8")))

    @property
    def game(self) -> str:
        """Name of the game."""
        return str(self.config["run"]["game"])

    @property
    def console(self) -> str | None:
        """Address of the web console that this session has started; `None` without."""
        return self._session.console if self._session else None

    @property
    def is_running(self) -> bool:
        """True while a process trains the run, of this interpreter or not."""
        if self._session is not None and self._session.process.poll() is None:
            return True
        return self._is_locked()

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
        arguments = _arguments(minutes=minutes, settings=settings, console=console, run=self.name)
        self._session = _start(arguments, self.path.parent, self.name, logger, output)[0]
        return self

    resume = start

    def wait(self, timeout: float | None = None) -> Run:
        """Waits for the end of the session, and returns this run.

        Ctrl-C drains the run and raises `KeyboardInterrupt`. Raises `TimeoutError` after `timeout` seconds, while
        training goes on; `ProgramError` if the session has failed; and the first exception of the logger.
        """
        try:
            if self._session is None:
                self._wait_for_lock(timeout)
            else:
                self._session.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"the run {self.name} trains for longer than {timeout} s") from None
        except KeyboardInterrupt:
            if self._session is not None:
                self.stop()
            raise
        if self._session is not None:
            self._session.check()
        return self

    def stop(self, timeout: float = _DRAIN_SECONDS) -> None:
        """Stops training: all processes finish or store the work in progress. Does nothing if the run has ended.

        A run of this interpreter that does not drain within `timeout` seconds is killed, and `ProgramError` is raised;
        acknowledged games and stored checkpoints survive. A run of another process gets the signal alone.
        """
        if self._session is not None:
            self._session.stop(timeout)
        elif self._is_locked():
            holder = (self.path / "lock").read_text(encoding="utf-8").removeprefix("process ").strip()
            if not holder.isdecimal():
                raise Error(f"the process that trains the run {self.name} is unknown")
            os.kill(int(holder), signal.SIGINT)
            self._wait_for_lock(timeout)

    def metrics(self, since: float | None = None) -> list[Row]:
        """Returns the rows of metrics so far, oldest first, one every five seconds of training.

        `since` leaves out rows until a time in seconds since 1970, such as the `unix_seconds` of the last known row.
        """
        return later(Lines(self.path / "metrics.jsonl").read(), since)

    def frame(self, library: str | None = None) -> Any:
        """Returns the numbers of the metrics as a DataFrame of `pandas` or `polars`, one row per reading."""
        return table(self.metrics(), library)

    def summary(self) -> dict[str, Any]:
        """Returns the summary that the last session has written at the end; empty before."""
        return self._json("summary.json")

    def ratings(self) -> list[dict[str, Any]]:
        """Returns the rated players, versions and fixed opponents, with `player`, `elo`, `low`, `high` and `games`."""
        return list(self._json("ratings.json").get("ratings", []))

    @property
    def weights(self) -> list[Weights]:
        """The kept weights versions, in ascending order: the latest, and those that the arena keeps."""
        rated = {
            each["player"]: {"elo": each["elo"], "elo_low": each["low"], "elo_high": each["high"]}
            for each in self.ratings()
        }
        found: dict[int, Weights] = {}
        for folder in ("arena", "weights"):
            for file in (self.path / folder).glob("v*.json"):
                # A session may have removed the version meanwhile.
                with contextlib.suppress(FileNotFoundError):
                    text = json.loads(file.read_bytes())
                    version = of_manifest(text, rated.get(f"v{text.get('version')}", {}), file)
                    found[version.version] = version
        return [found[version] for version in sorted(found)]

    def _json(self, name: str) -> dict[str, Any]:
        try:
            found = json.loads((self.path / name).read_bytes())
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise Error(f"{self.path / name} is damaged: {error}") from error
        return dict(found)

    def _is_locked(self) -> bool:
        try:
            import fcntl
        except ImportError:
            return False
        try:
            with (self.path / "lock").open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            return False
        return False

    def _wait_for_lock(self, timeout: float | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._is_locked():
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"the run {self.name} trains for longer than {timeout:g} s")
            time.sleep(_POLL_SECONDS)


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
    arguments = _arguments(
        game=None if game is None else getattr(game, "name", game),
        minutes=minutes,
        run=run,
        config=config,
        settings=settings,
        actors=actors,
        algorithm=algorithm,
        learner=learner,
        console=console,
    )
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
    session = _Session([*arguments, "--runs", str(runs)], runs, output)
    try:
        name = session.wait_for_name()
    except KeyboardInterrupt:
        session.stop(_DRAIN_SECONDS)
        raise
    if logger is not None:
        session.follow(runs / name / "metrics.jsonl", offset, logger)
    return session, name


def _arguments(*, settings: Mapping[str, object] | None = None, console: bool = False, **options: object) -> list[str]:
    """Returns the command line; options with `None` are left out."""
    line = [] if console else ["--no-console"]
    for name, value in options.items():
        if value is not None:
            line += [f"--{name}", str(value)]
    for key, value in (settings or {}).items():
        line += ["--set", f"{key}={_toml(value)}"]
    return line


def _toml(value: object, is_nested: bool = False) -> str:
    """Formats a value for `--set`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_toml(each, True) for each in value)}]"
    if isinstance(value, (str, os.PathLike)):
        text = os.fspath(value)
        is_plain = not is_nested and text == text.strip() and not text.startswith(('"', "'"))
        return str(text) if is_plain else json.dumps(text)
    # Scalars of numpy are numbers, too.
    return repr(value.item() if hasattr(value, "item") else value)
