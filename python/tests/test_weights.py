"""The publication of weights by a learner of one's own."""

from __future__ import annotations

import fcntl
import json
import pathlib
import threading
import time
from collections.abc import Iterator
from typing import IO

import numpy as np
import pytest

import zerofleet as zf
from zerofleet import safetensors


@pytest.fixture
def lock(tmp_path: pathlib.Path) -> Iterator[IO[str]]:
    """Holds the lock of a run, as a session does until the file is closed."""
    (tmp_path / "first").mkdir()
    with (tmp_path / "first" / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


@pytest.fixture
def run(tmp_path: pathlib.Path, lock: IO[str]) -> zf.Run:
    """Returns a run in training."""
    (tmp_path / "first" / "config.toml").write_text('[run]\ngame = "hex-5"\n')
    return zf.Run("first", runs=tmp_path)


def respond(run: zf.Run, number: int, response: str) -> threading.Thread:
    """Responds to one publication, as the fleet does."""

    def work() -> None:
        file = run.path / "incoming" / f"{number:06}.safetensors"
        while not file.exists():
            time.sleep(0.01)
        file.with_suffix(".tmp").write_text(response)
        file.with_suffix(".tmp").rename(file.with_suffix(".json"))

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_weights_are_published_in_order_and_read_by_the_fleet(run: zf.Run) -> None:
    publisher = zf.serve_weights(run)
    for number, version in [(1, 7), (2, 8)]:
        thread = respond(run, number, json.dumps({"version": version}))
        state = {"a": np.ones((2, 2), np.float32), "half": np.ones(1, np.float16)}
        assert publisher.publish(state, step=100 * number) == version
        thread.join()
        data = (run.path / "incoming" / f"{number:06}.safetensors").read_bytes()
        assert b'"__metadata__": {"training_step": "%d"}' % (100 * number) in data
        assert {tensor.dtype for tensor in safetensors.load(data).values()} == {np.dtype(np.float32)}
    assert not list((run.path / "incoming").glob("*.tmp"))


def test_tensors_of_torch_are_published(run: zf.Run) -> None:
    torch = pytest.importorskip("torch")
    thread = respond(run, 1, '{"version": 1}')
    state = {"a": torch.ones(2, 3, requires_grad=True).T, "b": torch.ones(1, dtype=torch.bfloat16)}
    assert zf.serve_weights(run).publish(state, step=1) == 1
    thread.join()
    tensors = safetensors.load((run.path / "incoming" / "000001.safetensors").read_bytes())
    assert (tensors["a"].shape, tensors["b"].tolist()) == ((3, 2), [1.0])


def test_a_refusal_and_a_fleet_that_does_not_respond_are_errors(run: zf.Run, lock: IO[str]) -> None:
    publisher = zf.serve_weights(run)
    thread = respond(run, 1, '{"error": "the tensor stem.weight is missing"}')
    with pytest.raises(zf.Error, match=r"^the tensor stem.weight is missing$"):
        publisher.publish({}, step=1)
    thread.join()
    with pytest.raises(zf.Error, match=r"000002\.json is missing: the run does not respond"):
        publisher.publish({}, step=2, timeout=0.1)
    lock.close()
    for wait in (lambda: publisher.publish({}, step=3), lambda: publisher.architecture):
        with pytest.raises(zf.Error, match="is missing: the run is not running"):
            wait()


def test_the_architecture_is_that_of_the_fleet(run: zf.Run) -> None:
    publisher, text = zf.serve_weights(run), {"game": "hex-5", "channels": 16}

    def start() -> None:
        (run.path / "incoming").mkdir()
        (run.path / "incoming" / "new").write_text(json.dumps(text))
        (run.path / "incoming" / "new").rename(run.path / "incoming" / "architecture.json")

    thread = threading.Timer(0.1, start)
    thread.start()
    assert publisher.architecture == text
    thread.join()
