"""Weights versions of a run, and the publication of weights by a learner of one's own."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from . import safetensors
from .errors import Error
from .networks import Network
from .run_directory import read_json

if TYPE_CHECKING:
    from .run import Run

_POLL_SECONDS = 0.05
_START_SECONDS = 60.0


@dataclasses.dataclass(frozen=True)
class Weights:
    """A weights version that a run keeps."""

    version: int
    """Number of the publication; starts at 1."""
    step: int
    """Training step of the weights."""
    digest: str
    """blake3 digest of the file, as 64 hexadecimal digits."""
    elo: float | None
    """Rating by the arena, where random play is 0; `None` if the version is not rated."""
    elo_low: float | None
    """Lower bound of the 95 % interval of `elo`."""
    elo_high: float | None
    """Upper bound of the 95 % interval of `elo`."""
    manifest: pathlib.Path
    """The manifest, a JSON file next to the weights."""
    _fetch: Callable[[], None] | None = dataclasses.field(default=None, repr=False, compare=False)

    @property
    def path(self) -> pathlib.Path:
        """The weights as safetensors. The first use of a version of another machine downloads the file."""
        if self._fetch is not None:
            self._fetch()
        return self.manifest.with_suffix(".safetensors")

    def evaluator(self) -> Network:
        """Returns the network with these weights, which evaluates positions on the CPU."""
        return Network.load(self.path)


def of_manifest(
    text: Mapping[str, Any],
    rating: tuple[float | None, float | None, float | None],
    manifest: pathlib.Path,
    fetch: Callable[[], None] | None = None,
) -> Weights:
    """Returns the version of a manifest, with the rating and the bounds."""
    try:
        version, step, digest = int(text["version"]), int(text["training_step"]), str(text["digest"])
    except (KeyError, TypeError, ValueError) as error:
        raise Error(f"{manifest} is no manifest of weights: {error!r}") from error
    return Weights(version, step, digest, *rating, manifest, fetch)


class Publisher:
    """Publishes the weights of a learner of one's own to a run that was started with `learner="own"`."""

    def __init__(self, run: Run) -> None:
        """Uses the folder `incoming` of the run."""
        self._run = run
        self._folder = run.path / "incoming"

    @property
    def architecture(self) -> dict[str, Any]:
        """Architecture of the network of the run, as in a manifest. Waits up to a minute for the start of the run."""
        return self._read("architecture.json", _START_SECONDS)

    def publish(self, state: Mapping[str, Any], step: int, *, timeout: float = 60.0) -> int:
        """Publishes weights after a training step, and returns the number of the version.

        `state` maps names of tensors to numpy arrays or torch tensors, which are published as float32. Raises `Error`
        if the fleet refuses the weights, does not respond within `timeout` seconds, or has ended.
        """
        self._folder.mkdir(exist_ok=True)
        taken = (file.name.split(".")[0] for file in self._folder.iterdir())
        number = 1 + max((int(name) for name in taken if name.isdecimal()), default=0)
        file = self._folder / f"{number:06}.safetensors"
        tensors = {name: _array(value) for name, value in state.items()}
        part = file.with_suffix(".tmp")
        safetensors.save(part, tensors, {"training_step": str(int(step))})
        os.replace(part, file)
        response = self._read(f"{number:06}.json", timeout)
        if "error" in response:
            raise Error(str(response["error"]))
        return int(response["version"])

    def _read(self, name: str, timeout: float) -> dict[str, Any]:
        """Waits for a file that the fleet writes."""
        deadline = time.monotonic() + timeout
        while not (found := read_json(self._folder / name)):
            is_running = self._run.is_running
            if not is_running or time.monotonic() > deadline:
                state = 'does not respond: start it with learner="own"' if is_running else "is not running"
                raise Error(f"{self._folder / name} is missing: the run {state}")
            time.sleep(_POLL_SECONDS)
        return found


def serve_weights(run: Run) -> Publisher:
    """Returns the publisher for a learner of one's own. The run was started with `learner="own"`."""
    return Publisher(run)


def _array(value: Any) -> np.ndarray[Any, Any]:
    # numpy has no bfloat16.
    return np.asarray(value.detach().cpu().float() if hasattr(value, "detach") else value, "<f4")
