"""Weights versions of a run, and the publication of weights by a learner of one's own."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from . import safetensors
from .errors import Error

if TYPE_CHECKING:
    from .networks import Network
    from .run import Run

_POLL_SECONDS = 0.05


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
        from .networks import Network

        # The network is loaded from the file next to the manifest.
        assert self.path.parent == self.manifest.parent
        return Network.load(self.manifest)


def of_manifest(
    text: Mapping[str, Any],
    ratings: Mapping[str, Any],
    manifest: pathlib.Path,
    fetch: Callable[[], None] | None = None,
) -> Weights:
    """Returns the version of a manifest, with the ratings `elo`, `elo_low` and `elo_high`."""
    try:
        version, step, digest = int(text["version"]), int(text["training_step"]), str(text["digest"])
    except (KeyError, TypeError, ValueError) as error:
        raise Error(f"{manifest} is no manifest of weights: {error!r}") from error
    elo, low, high = (ratings.get(name) for name in ("elo", "elo_low", "elo_high"))
    return Weights(version, step, digest, elo, low, high, manifest, fetch)


class Publisher:
    """Publishes the weights of a learner of one's own to a run that was started with `learner="own"`."""

    def __init__(self, run: Run) -> None:
        """Uses the folder `incoming` of the run."""
        self._run = run
        self._folder = run.path / "incoming"

    def publish(self, state: Mapping[str, Any], step: int, *, timeout: float = 60.0) -> int:
        """Publishes weights after a training step, and returns the number of the version.

        `state` maps names of tensors to numpy arrays or torch tensors; half precision is published as float32. Raises
        `Error` if the fleet refuses the weights, or does not respond within `timeout` seconds.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        taken = (file.name.split(".")[0] for file in self._folder.iterdir())
        number = 1 + max((int(name) for name in taken if name.isdecimal()), default=0)
        file = self._folder / f"{number:06}.safetensors"
        tensors = {name: _array(value) for name, value in state.items()}
        part = file.with_name(file.name + ".tmp")
        safetensors.save(part, tensors, {"training_step": str(int(step))})
        os.replace(part, file)
        return self._response(file.with_suffix(".json"), time.monotonic() + timeout)

    def _response(self, file: pathlib.Path, deadline: float) -> int:
        while True:
            try:
                response = json.loads(file.read_bytes())
                break
            except FileNotFoundError:
                pass
            except ValueError as error:
                # The file may be incomplete.
                if time.monotonic() > deadline:
                    raise Error(f"{file} is damaged: {error}") from error
            if time.monotonic() > deadline:
                state = "does not respond" if self._run.is_running else "is not running"
                raise Error(f"the weights in {file.with_suffix('.safetensors')} were not published: the run {state}")
            time.sleep(_POLL_SECONDS)
        if "error" in response:
            raise Error(str(response["error"]))
        return int(response["version"])


def serve_weights(run: Run) -> Publisher:
    """Returns the publisher for a learner of one's own. The run was started with `learner="own"`."""
    return Publisher(run)


def _array(value: Any) -> np.ndarray[Any, Any]:
    if hasattr(value, "detach"):
        tensor = value.detach().cpu()
        # numpy has no bfloat16.
        value = (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype == np.float16 else array
