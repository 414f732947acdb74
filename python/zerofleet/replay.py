"""Batches for training, from an exported file or from the replay servers of a run."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import pathlib
import subprocess
import tempfile
import time
from collections.abc import Generator, Iterator
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from . import programs, run_directory
from .errors import Error, ProgramError, optional
from .games import Floats, Game, observations
from .run import Run

_Row = dict[str, Any]
_READ_ROWS = 1 << 14
_POLL_SECONDS = 0.05


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
    actions: npt.NDArray[np.int64] | None = None
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


class Replay:
    """Batches of recorded positions: an iterator, and a context manager that ends the source.

    A Parquet file, as `zerofleet replay export` writes it, gives each searched position once, as `Batch`; the last
    batch may be smaller. `shuffle` mixes the positions in a buffer of so many rows, by the order of `seed`. A run in
    training gives samples as the learner draws them, until training ends: `Batch`, or `UnrolledBatch` for a learned
    model.
    """

    def __init__(
        self,
        source: Run | str | os.PathLike[str],
        batch: int = 1024,
        *,
        batches: int | None = None,
        shuffle: int = 0,
        seed: int = 0,
    ) -> None:
        """Opens a file, or draws from the replay servers of a run; ends after `batches` batches."""
        if batch < 1 or (batches is not None and batches < 0) or shuffle < 0:
            raise ValueError("batch must be at least 1; batches and shuffle must not be negative")
        self._batches: Generator[Batch | UnrolledBatch, None, None]
        if isinstance(source, Run):
            self._batches = _drawn(source, batch, batches)
        else:
            rows = _shuffled(_searched(_file(pathlib.Path(source))), shuffle, np.random.default_rng(seed))
            self._batches = (_batch(group) for group in itertools.islice(_grouped(rows, batch), batches))

    def __iter__(self) -> Iterator[Batch | UnrolledBatch]:
        return self

    def __next__(self) -> Batch | UnrolledBatch:
        return next(self._batches)

    def __enter__(self) -> Replay:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the source; there are no further batches."""
        self._batches.close()


def _drawn(run: Run, batch: int, batches: int | None) -> Generator[Batch | UnrolledBatch, None, None]:
    """Yields the batches that the program `zerofleet replay batches` writes, which is killed at the end."""
    # A new run writes the addresses of the servers shortly after the start.
    while run.is_running and not run_directory.read_json(run.path / "progress.json").get("replay"):
        time.sleep(_POLL_SECONDS)
    command = [str(programs.path("zerofleet")), "replay", "batches", "--run", run.name, "--runs", str(run.path.parent)]
    command += ["--batch-size", str(batch), *([] if batches is None else ["--batches", str(batches)])]
    with (
        # The errors go to a file: a full pipe would block the program.
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        assert process.stdout is not None
        try:
            while header := process.stdout.readline():
                yield _received(header, process.stdout)
            if process.wait() != 0:
                errors.seek(0)
                text = programs.failure(errors.read().decode(errors="replace"))
                raise ProgramError(text, command, process.returncode)
        finally:
            process.kill()


def _received(header: bytes, stream: IO[bytes]) -> Batch | UnrolledBatch:
    """Reads the arrays after a header."""
    try:
        frame = json.loads(header)
        arrays: dict[str, Any] = {}
        for each in frame["arrays"]:
            arrays[each["name"]] = array = np.empty(each["shape"], each["dtype"])
            if stream.readinto(array) != array.nbytes:  # type: ignore[attr-defined]
                raise EOFError("the batch is incomplete")
        if "wdl" in arrays:
            return Batch(policies=arrays.pop("policy"), rejected=frame["rejected"], **arrays)
        named = {name: arrays[name] for name in ("observations", "actions", "rewards", "values", "policies")}
        return UnrolledBatch(arrays=arrays, rejected=frame["rejected"], **named)
    except (ValueError, KeyError, TypeError, EOFError, MemoryError) as error:
        raise Error(f"the program zerofleet sent a damaged batch: {error!r}") from error


def _file(path: pathlib.Path) -> Any:
    if not path.is_file():
        raise Error(f"no file {path}; zerofleet replay export writes one")
    return optional("pyarrow.parquet", "a Parquet file").ParquetFile(path)


def _searched(file: Any) -> Iterator[_Row]:
    """Yields the rows with a search policy, each with the actions `before`. Rows of a trajectory are consecutive."""
    trajectory, actions = None, list[int]()
    for rows in file.iter_batches(_READ_ROWS):
        for row in rows.to_pylist():
            key = (row["actor"], row["epoch"], row["sequence"])
            if key != trajectory:
                trajectory, actions = key, []
            if row["ply"] != len(actions):
                raise Error(f"the trajectory {'/'.join(map(str, key))} lacks the ply {len(actions)}")
            if row["kind"] == "full":
                yield {**row, "before": tuple(actions)}
            actions.append(row["action"])


def _shuffled(rows: Iterator[_Row], size: int, rng: np.random.Generator) -> Iterator[_Row]:
    """Yields the rows in a random order: each leaves a buffer of `size` rows at random."""
    buffer = list(itertools.islice(rows, size))
    for row in rows:
        if size:
            place = int(rng.integers(size))
            buffer[place], row = row, buffer[place]
        yield row
    rng.shuffle(buffer)  # type: ignore[arg-type]
    yield from buffer


def _grouped(rows: Iterator[_Row], batch: int) -> Iterator[list[_Row]]:
    """Yields lists of `batch` rows of one game; the last list may be shorter."""
    games: dict[str, list[_Row]] = {}
    for row in rows:
        group = games.setdefault(row["game"], [])
        group.append(row)
        if len(group) == batch:
            yield games.pop(row["game"])
    yield from games.values()


def _batch(rows: list[_Row]) -> Batch:
    """Builds the batch of rows of one game. The players alternate with every action."""
    game = Game(rows[0]["game"])
    policies = np.zeros((len(rows), game.actions), np.float32)
    wdl = np.full((len(rows), 3), np.nan, np.float32)
    for index, row in enumerate(rows):
        policies[index, row["policy_action"]] = row["policy_probability"]
        if row["outcome"] is not None:
            score = row["outcome"] * (-1) ** len(row["before"])
            wdl[index] = np.eye(3)[1 - score]
    return Batch(
        observations(game, [(row["seed"] % (1 << 64), row["before"]) for row in rows]),
        policies,
        wdl,
        np.array([row["value"] for row in rows], np.float32),
        np.array([row["action"] for row in rows], np.int64),
        np.array([row["reward"] for row in rows], np.float32),
    )
