"""Batches from files and from servers."""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import zerofleet as zf

Program = Callable[..., pathlib.Path]

FULL, FAST = "full", "fast"


def exported(tmp_path: pathlib.Path, rows: list[dict[str, Any]]) -> pathlib.Path:
    """Writes positions as `zerofleet replay export` does."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "positions.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    return file


def position(sequence: int, ply: int, action: int, kind: str = FULL, **changes: Any) -> dict[str, Any]:
    """Returns a row of an exported file: a position of a game that the first player wins."""
    row = {
        "actor": 1,
        "epoch": 1,
        "sequence": sequence,
        "ply": ply,
        "action": action,
        "kind": kind,
        "value": 0.5,
        "reward": 0.0,
        "weights_version": 3,
        "outcome": 1,
        "policy_action": [action, 8] if kind == FULL else [],
        "policy_probability": [0.75, 0.25] if kind == FULL else [],
        "game": "tic_tac_toe",
        "seed": -1,
    }
    return {**row, **changes}


def test_a_file_gives_searched_positions_with_the_actions_before(tmp_path: pathlib.Path) -> None:
    rows = [position(0, 0, 4), position(0, 1, 0, FAST), position(0, 2, 5), position(0, 3, 3)]
    file = exported(tmp_path, [*rows, position(1, 0, 2, outcome=0)])
    first, second = list(zf.Replay(file, batch=3))
    assert isinstance(first, zf.Batch)
    assert isinstance(second, zf.Batch)
    positions = [zf.Game("tic_tac_toe").position(moves) for moves in ([], [4, 0], [4, 0, 5])]
    np.testing.assert_array_equal(first.observations, [each.observation() for each in positions])
    np.testing.assert_array_equal(first.policies[0], [0, 0, 0, 0, 0.75, 0, 0, 0, 0.25])
    np.testing.assert_array_equal(first.wdl, [[1, 0, 0], [1, 0, 0], [0, 0, 1]])
    np.testing.assert_array_equal(second.wdl, [[0, 1, 0]])
    assert first.actions is not None
    assert first.actions.tolist() == [4, 5, 3]


def test_episodes_scored_by_rewards_start_from_the_seed_and_have_no_result(tmp_path: pathlib.Path) -> None:
    changes: dict[str, Any] = {
        "game": "cartpole-v1",
        "outcome": None,
        "policy_action": [0],
        "policy_probability": [1.0],
    }
    file = exported(tmp_path, [position(0, ply, 0, reward=1.0, **changes) for ply in range(2)])
    (batch,) = zf.Replay(file)
    assert isinstance(batch, zf.Batch)
    start = zf.Game("cartpole-v1").start((1 << 64) - 1)
    np.testing.assert_array_equal(batch.observations, [start.observation(), start.play(0).observation()])
    assert np.isnan(batch.wdl).all() and batch.rewards is not None and batch.rewards.tolist() == [1.0, 1.0]


def test_shuffled_positions_are_the_same_positions_in_the_order_of_the_seed(tmp_path: pathlib.Path) -> None:
    file = exported(tmp_path, [position(sequence, 0, sequence % 8) for sequence in range(50)])

    def actions(**options: Any) -> list[int]:
        return [action for batch in zf.Replay(file, batch=7, **options) for action in batch.actions.tolist()]  # type: ignore[union-attr]

    ordered, mixed = actions(), actions(shuffle=20, seed=1)
    assert sorted(mixed) == sorted(ordered)
    assert mixed != ordered
    assert mixed == actions(shuffle=20, seed=1) != actions(shuffle=20, seed=2)
    assert len(actions(batches=2)) == 14


def test_a_trajectory_with_a_missing_ply_and_a_missing_file_are_errors(tmp_path: pathlib.Path) -> None:
    file = exported(tmp_path, [position(0, 0, 4), position(0, 2, 5)])
    with pytest.raises(zf.Error, match="the trajectory 1/1/0 lacks the ply 1"):
        list(zf.Replay(file))
    with pytest.raises(zf.Error, match="no file"):
        zf.Replay(tmp_path / "other.parquet")
    for wrong in ({"batch": 0}, {"batches": -1}, {"shuffle": -1}):
        with pytest.raises(ValueError, match="batch must be at least 1"):
            zf.Replay(file, **wrong)


# Writes batches as `zerofleet replay batches` does, without an end unless `--batches` is given.
BATCHES = """
import json, itertools, os, pathlib, struct, sys
pathlib.Path(__file__).with_name("process").write_text(str(os.getpid()))
arguments = sys.argv[1:]
count = int(arguments[arguments.index("--batches") + 1]) if "--batches" in arguments else None
for number in itertools.count() if count is None else range(count):
    arrays = [("observations", [2, 1, 1, 2], [number, 1, 2, 3]), ("policy", [2, 2], [0, 1, 1, 0]),
              ("wdl", [2, 3], [1, 0, 0, 0, 0, 1]), ("policy_weights", [2], [1, 0])]
    header = [{"name": name, "dtype": "float32", "shape": shape} for name, shape, _ in arrays]
    sys.stdout.buffer.write(json.dumps({"arrays": header, "rejected": number}).encode() + b"\\n")
    for _, _, values in arrays:
        sys.stdout.buffer.write(struct.pack(f"<{len(values)}f", *values))
"""


@pytest.fixture
def run(tmp_path: pathlib.Path) -> zf.Run:
    """Returns a run without a session."""
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "config.toml").write_text('[run]\ngame = "hex-5"\n')
    return zf.Run("first", runs=tmp_path)


def test_the_servers_of_a_run_give_batches(program: Program, run: zf.Run) -> None:
    program(BATCHES)
    first, second = list(zf.Replay(run, batch=2, batches=2))
    assert isinstance(second, zf.Batch)
    np.testing.assert_array_equal(second.observations, np.array([1, 1, 2, 3]).reshape(2, 1, 1, 2))
    np.testing.assert_array_equal(second.wdl, [[1, 0, 0], [0, 0, 1]])
    assert (first.rejected, second.rejected, second.importance) == (0, 1, None)
    assert second.policy_weights is not None
    assert second.policy_weights.tolist() == [1.0, 0.0]


def test_an_endless_source_ends_when_it_is_closed(program: Program, run: zf.Run) -> None:
    path = program(BATCHES)
    with zf.Replay(run) as replay:
        assert [batch.rejected for batch, _ in zip(replay, range(3), strict=False)] == [0, 1, 2]
    assert list(replay) == []
    with pytest.raises(ProcessLookupError):
        os.kill(int((path.parent / "process").read_text()), 0)


def test_batches_of_a_learned_model_have_all_arrays_by_name(program: Program, run: zf.Run) -> None:
    program("""
import json, sys
shapes = {"observations": [1, 1, 1, 1], "actions": [1, 2], "rewards": [1, 2], "values": [1, 3],
          "policies": [1, 3, 2], "masks": [1, 3], "empty": [0, 3]}
header = [{"name": name, "dtype": "int32" if name == "actions" else "float32", "shape": shape}
          for name, shape in shapes.items()]
header = json.dumps({"arrays": header, "rejected": 0})
sys.stdout.buffer.write(header.encode() + b"\\n" + bytes(4 * (1 + 2 + 2 + 3 + 6 + 3)))
""")
    (batch,) = zf.Replay(run)
    assert isinstance(batch, zf.UnrolledBatch)
    assert batch.policies.shape == (1, 3, 2)
    assert batch.actions.dtype == np.dtype(np.int32)
    assert (batch.arrays["masks"].shape, batch.arrays["empty"].shape) == ((1, 3), (0, 3))


@pytest.mark.parametrize(
    "header",
    [
        "no json",
        "{}",
        json.dumps({"arrays": [{"name": "a", "dtype": "object", "shape": [1]}]}),
        json.dumps({"arrays": [{"name": "a", "dtype": "float32", "shape": [1 << 40]}]}),
        json.dumps({"arrays": [{"name": "a", "dtype": "float32", "shape": [-1]}]}),
        json.dumps({"arrays": [{"name": "a", "dtype": "float32", "shape": [1] * 9}]}),
        json.dumps({"arrays": [{"name": "a", "dtype": "uint8", "shape": [0]}] * 40}),
        json.dumps({"arrays": [{"name": "wdl", "dtype": "float32", "shape": [1, 3]}]}),
        json.dumps({"arrays": []}),
    ],
)
def test_damaged_batches_are_errors(program: Program, run: zf.Run, header: str) -> None:
    program(f"print({header!r})")
    with pytest.raises(zf.Error, match="the program zerofleet sent a"):
        next(zf.Replay(run))


def test_batches_of_a_run_that_starts_wait_for_the_servers(program: Program, run: zf.Run) -> None:
    progress = run.path / "progress.json"
    program(f"import pathlib, sys; sys.exit('error: started after ' + pathlib.Path({str(progress)!r}).read_text())")
    progress.write_text('{"replay": []}')

    def start() -> None:
        (run.path / "new").write_text('{"replay": ["127.0.0.1:7001"]}')
        (run.path / "new").rename(progress)

    with (run.path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        thread = threading.Timer(0.1, start)
        thread.start()
        with pytest.raises(zf.ProgramError, match=r'started after {"replay": \["127'):
            next(zf.Replay(run))
        thread.join()


def test_the_error_of_the_program_is_raised(program: Program, run: zf.Run) -> None:
    program("import sys; sys.exit('error: the run first is not in training')")
    with pytest.raises(zf.ProgramError, match=r"^the run first is not in training$"):
        next(zf.Replay(run))
