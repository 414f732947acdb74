"""Loggers on libraries of the user."""

from __future__ import annotations

import sys
import types
from typing import Any
from unittest import mock

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


def test_tensorboard_gets_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    library = mock.MagicMock()
    monkeypatch.setitem(sys.modules, "tensorboardX", library)
    logger = loggers.TensorBoard("events", flush_secs=1)
    logger(ROW)
    logger.close()
    library.SummaryWriter.assert_called_once_with("events", flush_secs=1)
    written = [mock.call.add_scalar(name, value, 12, walltime=5.0) for name, value in NUMBERS.items()]
    assert library.SummaryWriter().method_calls == [*written, mock.call.close()]


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


@pytest.mark.parametrize("is_known", [True, False])
def test_mlflow_gets_the_numbers(monkeypatch: pytest.MonkeyPatch, is_known: bool) -> None:
    library = mock.MagicMock()
    library.entities.Metric = lambda *values: values
    client = library.MlflowClient()
    client.get_experiment_by_name.return_value = mock.Mock(experiment_id="7") if is_known else None
    client.create_experiment.return_value = "8"
    monkeypatch.setitem(sys.modules, "mlflow", library)
    logger = loggers.MLflow("games", tracking_uri="http://127.0.0.1:5000", name="first")
    logger(ROW)
    logger.close()
    library.MlflowClient.assert_called_with("http://127.0.0.1:5000")
    client.create_run.assert_called_once_with("7" if is_known else "8", run_name="first")
    run = client.create_run().info.run_id
    metrics = [(name, value, 5000, 12) for name, value in NUMBERS.items()]
    client.log_batch.assert_called_once_with(run, metrics=metrics)
    client.set_terminated.assert_called_once_with(run)


@pytest.mark.parametrize(
    ("logger", "package"), [("TensorBoard", "tensorboardX"), ("WeightsAndBiases", "wandb"), ("MLflow", "mlflow")]
)
def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, logger: str, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=f"pip install {package}"):
        getattr(loggers, logger)("x")
