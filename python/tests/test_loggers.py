"""Loggers on libraries of the user."""

from __future__ import annotations

import pathlib
import sys
import types
from typing import Any

import pytest

from zerofleet import loggers

ROW = {
    "steps": 12.0,
    "unix_seconds": 5.0,
    "loss_total": 1.5,
    "elo": None,
    "accuracy": {"raw": 0.5},
    "engines": {"a": "b"},
}
NUMBERS = {"steps": 12.0, "unix_seconds": 5.0, "loss_total": 1.5, "accuracy/raw": 0.5}


def test_tensorboard_writes_an_event_file(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("tensorboardX")
    logger = loggers.TensorBoard(str(tmp_path))
    logger(ROW)
    logger.close()
    (file,) = tmp_path.glob("events.out.tfevents.*")
    assert b"accuracy/raw" in file.read_bytes()


def test_weights_and_biases_get_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    run = types.SimpleNamespace(log=lambda numbers, step: calls.append((numbers, step)), finish=lambda: calls.append(0))

    def init(**options: Any) -> types.SimpleNamespace:
        calls.append(options)
        return run

    wandb = types.SimpleNamespace(init=init)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    logger = loggers.WeightsAndBiases("games", tags=["a"])
    logger(ROW)
    logger.close()
    assert calls == [{"project": "games", "tags": ["a"]}, (NUMBERS, 12), 0]


@pytest.mark.parametrize(
    ("logger", "package"), [("TensorBoard", "tensorboardX"), ("WeightsAndBiases", "wandb"), ("MLflow", "mlflow")]
)
def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, logger: str, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=f"pip install {package}"):
        getattr(loggers, logger)("x")
