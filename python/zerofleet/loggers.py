"""Loggers for `zerofleet.train`, each on a library of the user."""

from __future__ import annotations

from typing import Any

from .errors import optional
from .metrics import Row, scalars, step


class TensorBoard:
    """Writes event files for TensorBoard into a directory, with the package `tensorboardX`."""

    def __init__(self, directory: str, **options: Any) -> None:
        """Passes further options to `tensorboardX.SummaryWriter`."""
        self._writer = optional("tensorboardX", "the logger for TensorBoard").SummaryWriter(str(directory), **options)

    def __call__(self, row: Row) -> None:
        """Writes a row."""
        for name, value in scalars(row).items():
            self._writer.add_scalar(name, value, step(row), walltime=row.get("unix_seconds"))

    def close(self) -> None:
        """Completes the files."""
        self._writer.close()


class WeightsAndBiases:
    """Logs to a run of Weights & Biases, with the package `wandb`."""

    def __init__(self, project: str | None = None, **options: Any) -> None:
        """Passes further options to `wandb.init`."""
        self._run = optional("wandb", "the logger for Weights & Biases").init(project=project, **options)

    def __call__(self, row: Row) -> None:
        """Logs a row."""
        self._run.log(scalars(row), step=step(row))

    def close(self) -> None:
        """Finishes the run of Weights & Biases."""
        self._run.finish()


class MLflow:
    """Logs to a run of MLflow, with the package `mlflow`."""

    def __init__(self, experiment: str = "Default", tracking_uri: str | None = None, name: str | None = None) -> None:
        """Creates a run in an experiment, which is created if it is missing."""
        self._mlflow = optional("mlflow", "the logger for MLflow")
        self._client = self._mlflow.MlflowClient(tracking_uri)
        found = self._client.get_experiment_by_name(experiment)
        number = found.experiment_id if found else self._client.create_experiment(experiment)
        self._run = self._client.create_run(number, run_name=name).info.run_id

    def __call__(self, row: Row) -> None:
        """Logs a row."""
        time = int(1000 * row.get("unix_seconds", 0.0))
        entries = [self._mlflow.entities.Metric(key, value, time, step(row)) for key, value in scalars(row).items()]
        self._client.log_batch(self._run, metrics=entries)

    def close(self) -> None:
        """Marks the run of MLflow as finished."""
        self._client.set_terminated(self._run)
