"""Batches for training, from an exported file or from the replay servers of a run."""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from . import programs
from .errors import Error, ProgramError, missing
from .run import Run

if TYPE_CHECKING:
    from types import TracebackType

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

_HEADER_BYTES_MAX = 1 << 16
_ARRAYS_MAX = 32
_DIMENSIONS_MAX = 6
_BATCH_BYTES_MAX = 1 << 33
_TYPES = {"float32", "float64", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"}
_READ_ROWS = 1 << 14


@dataclasses.dataclass(frozen=True)
class Batch:
    """B positions with the targets of AlphaZero."""

    observations: Floats
    """Planes [B, C, H, W] as seen by the player to move."""
    policies: Floats
    """Search policies over all actions [B, A]."""
    wdl: Floats
    """Probabilities of win, draw and loss for the player to move [B, 3]; NaN in episodes scored by rewards."""
    values: Floats | None = None
    """Values of the searches for the player to move [B]; from a file only."""
    actions: Integers | None = None
    """Played actions [B]; from a file only."""
    rewards: Floats | None = None
    """Rewards of the played actions [B]; from a file only."""
    legal: npt.NDArray[np.uint8] | None = None
    """1 for legal actions [B, A]; from servers only."""
    policy_weights: Floats | None = None
    """Weights of the policy targets [B], 0 for a position without a search policy; from servers only."""
    importance: Floats | None = None
    """Importance weights [B]; from servers with prioritised samples only."""
    rejected: int = 0
    """Samples that broke the rules and were left out."""


@dataclasses.dataclass(frozen=True)
class UnrolledBatch:
    """B positions, each with the K following steps: the targets of MuZero, named in `arrays`."""

    observations: Floats
    """Planes [B, C, H, W] of the first positions."""
    actions: npt.NDArray[Any]
    """Played actions [B, K]."""
    rewards: Floats
    """Rewards of the actions [B, K]."""
    values: Floats
    """Target values [B, K + 1]."""
    policies: Floats
    """Search policies [B, K + 1, A]."""
    arrays: dict[str, npt.NDArray[Any]]
    """All arrays by name, with the weights of the targets: `policy_weights` and `value_weights` [B, K + 1]."""
    rejected: int = 0
    """Samples that broke the rules and were left out."""


@dataclasses.dataclass(frozen=True)
class _Position:
    """A searched position of an exported trajectory."""

    game: str
    seed: int
    actions: tuple[int, ...]
    policy: tuple[list[int], list[float]]
    value: float
    action: int
    reward: float
    outcome: int | None


class Replay:
    """Batches of recorded positions: an iterator, and a context manager that ends the source.

    A Parquet file, as `zerofleet replay export` writes it, gives each searched position once, as `Batch`; the last
    batch may be smaller. `shuffle` mixes the positions in a buffer of so many rows, by the order of `seed`. A run in
    training gives samples until its end, as the learner draws them: `Batch`, or `UnrolledBatch` for a learned model.
    """

    def __init__(
        self,
        source: Run | str | os.PathLike[str],
        batch: int = 1024,
        *,
        batches: int | None = None,
        endpoint: str | None = None,
        shuffle: int = 0,
        seed: int = 0,
    ) -> None:
        """Opens a file, the replay servers of a run, or the one at `endpoint`; ends after `batches` batches."""
        if batch < 1 or (batches is not None and batches < 0) or shuffle < 0:
            raise Error("batch must be at least 1; batches and shuffle must not be negative")
        self._close_source: Callable[[], None] = lambda: None
        self._batches: Iterator[Batch | UnrolledBatch] = iter(())
        if isinstance(source, Run):
            self._batches = self._open_servers(source, batch, batches, endpoint)
        else:
            # The file is opened here, so that a missing one is an error of the constructor.
            positions = _shuffled(_searched(_file(pathlib.Path(source))), shuffle, np.random.default_rng(seed))
            grouped = _grouped(positions, batch)
            self._batches = (_batch(rows) for _, rows in _limited(grouped, batches))

    def __iter__(self) -> Iterator[Batch | UnrolledBatch]:
        return self

    def __next__(self) -> Batch | UnrolledBatch:
        return next(self._batches)

    def __enter__(self) -> Replay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Ends the source; there are no further batches."""
        self._batches = iter(())
        # Missing if the constructor has failed.
        getattr(self, "_close_source", lambda: None)()

    def _open_servers(
        self, run: Run, batch: int, batches: int | None, endpoint: str | None
    ) -> Iterator[Batch | UnrolledBatch]:
        command = [str(programs.path("zerofleet")), "replay", "batches"]
        command += ["--run", run.name, "--runs", str(run.path.parent), "--batch-size", str(batch)]
        command += [] if endpoint is None else ["--endpoint", endpoint]
        command += [] if batches is None else ["--batches", str(batches)]
        # The errors go to a file: a full pipe would block the program.
        errors = tempfile.TemporaryFile()  # noqa: SIM115
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)

        def close() -> None:
            if process.poll() is None:
                process.kill()
            if process.stdout is not None:
                process.stdout.close()
            process.wait()
            errors.close()

        self._close_source = close
        return _frames(process, errors)


def _frames(process: subprocess.Popen[bytes], errors: IO[bytes]) -> Iterator[Batch | UnrolledBatch]:
    """Yields the batches that a program writes."""
    assert process.stdout is not None
    while header := process.stdout.readline(_HEADER_BYTES_MAX):
        yield _received(*_frame(header, process.stdout))
    if process.wait() != 0:
        errors.seek(0)
        text = errors.read().decode(errors="replace")
        command = [str(word) for word in process.args] if isinstance(process.args, list) else []
        raise ProgramError(programs.failure(text), command, process.returncode)


def _frame(header: bytes, stream: IO[bytes]) -> tuple[dict[str, npt.NDArray[Any]], int]:
    """Reads the arrays after a header, and returns them with the number of rejected samples."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    try:
        frame = json.loads(header)
        listed, rejected, total = frame["arrays"], int(frame.get("rejected", 0)), 0
        if len(listed) > _ARRAYS_MAX:
            raise ValueError("too many arrays")
        for each in listed:
            name, kind, shape = str(each["name"]), str(each["dtype"]), [int(size) for size in each["shape"]]
            if kind not in _TYPES or len(shape) > _DIMENSIONS_MAX or min(shape, default=0) < 0:
                raise ValueError(f"the array {name} has the type {kind} and the shape {shape}")
            dtype = np.dtype(kind).newbyteorder("<")
            total += math.prod(shape) * dtype.itemsize
            if total > _BATCH_BYTES_MAX:
                raise ValueError("the batch is too large")
            arrays[name] = np.empty(shape, dtype)
            _fill(arrays[name], stream)
    except (ValueError, KeyError, TypeError, EOFError) as error:
        raise Error(f"the program zerofleet sent a damaged batch: {error!r}") from error
    return arrays, rejected


def _fill(array: npt.NDArray[Any], stream: IO[bytes]) -> None:
    # An array without elements has no bytes to cast.
    view = array.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")
    while view:
        count = stream.readinto(view)  # type: ignore[attr-defined]
        if not count:
            raise EOFError("the batch is incomplete")
        view = view[count:]


def _received(arrays: dict[str, npt.NDArray[Any]], rejected: int) -> Batch | UnrolledBatch:
    try:
        if "wdl" in arrays:
            more = {name: arrays.get(name) for name in ("legal", "policy_weights", "importance")}
            return Batch(arrays["observations"], arrays["policy"], arrays["wdl"], rejected=rejected, **more)
        return UnrolledBatch(
            arrays["observations"],
            arrays["actions"],
            arrays["rewards"],
            arrays["values"],
            arrays["policies"],
            arrays,
            rejected,
        )
    except KeyError as error:
        raise Error(f"the program zerofleet sent a batch without the array {error}") from error


def _file(path: pathlib.Path) -> Any:
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise missing("pyarrow", "a Parquet file") from error
    if not path.is_file():
        raise Error(f"no file {path}; zerofleet replay export writes one")
    return parquet.ParquetFile(path)


def _searched(file: Any) -> Iterator[_Position]:
    """Yields the positions with a search policy. The rows of a trajectory are consecutive, by ply."""
    trajectory, actions = None, list[int]()
    for rows in file.iter_batches(_READ_ROWS):
        for row in rows.to_pylist():
            key = (row["actor"], row["epoch"], row["sequence"])
            if key != trajectory:
                trajectory, actions = key, []
            if row["ply"] != len(actions):
                raise Error(f"the trajectory {'/'.join(map(str, key))} lacks the ply {len(actions)}")
            if row["kind"] == "full":
                policy = (row["policy_action"], row["policy_probability"])
                # Files of earlier versions lack the seed, which board games ignore.
                seed = row.get("seed", 0) % (1 << 64)
                value = math.nan if row["value"] is None else row["value"]
                yield _Position(
                    row["game"], seed, tuple(actions), policy, value, row["action"], row["reward"], row["outcome"]
                )
            actions.append(row["action"])


def _shuffled(positions: Iterator[_Position], size: int, rng: np.random.Generator) -> Iterator[_Position]:
    """Yields the positions in a random order: each leaves a buffer of `size` positions at random."""
    buffer: list[_Position] = []
    for position in positions:
        if len(buffer) < size:
            buffer.append(position)
            continue
        if size:
            place = int(rng.integers(size))
            buffer[place], position = position, buffer[place]
        yield position
    for place in rng.permutation(len(buffer)):
        yield buffer[place]


def _grouped(positions: Iterator[_Position], batch: int) -> Iterator[list[_Position]]:
    """Yields lists of `batch` positions of one game; the last list may be shorter."""
    games: dict[str, list[_Position]] = {}
    for position in positions:
        rows = games.setdefault(position.game, [])
        rows.append(position)
        if len(rows) == batch:
            yield games.pop(position.game)
    yield from games.values()


def _limited(groups: Iterator[list[_Position]], count: int | None) -> Iterator[tuple[int, list[_Position]]]:
    return zip(range(count), groups, strict=False) if count is not None else enumerate(groups)


def _batch(rows: list[_Position]) -> Batch:
    """Builds the batch of positions of one game. The players alternate with every action."""
    name = rows[0].game
    games = importlib.import_module("zerofleet.games")
    game = games.Game(name)
    policies = np.zeros((len(rows), game.actions), np.float32)
    wdl = np.full((len(rows), 3), np.nan, np.float32)
    for index, row in enumerate(rows):
        actions, probabilities = row.policy
        policies[index, actions] = probabilities
        if row.outcome is not None:
            score = row.outcome if len(row.actions) % 2 == 0 else -row.outcome
            wdl[index] = np.eye(3)[1 - score]
    return Batch(
        games.observations(game, [(row.seed, row.actions) for row in rows]),
        policies,
        wdl,
        np.array([row.value for row in rows], np.float32),
        np.array([row.action for row in rows], np.int64),
        np.array([row.reward for row in rows], np.float32),
    )
