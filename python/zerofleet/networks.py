"""Networks of published weights, evaluated on the CPU by the kernels of the fleet."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from . import _zerofleet
from .games import Floats, Mask, array
from .run_directory import manifests

if TYPE_CHECKING:
    from .run import Run
    from .weights import Weights

Source: TypeAlias = "str | os.PathLike[str] | Run | Weights"
"""A run, a version of the weights of a run, the path of a run, of a model folder or a file in it, or of a manifest next
to the weights, or the name of a bundled model: `connect_four`."""


class Evaluation(NamedTuple):
    """The evaluation of B positions. A single position has arrays without the axis B."""

    priors: Floats
    """Priors `[B, A]`, which sum to 1 over the legal actions and are 0 for all others."""
    value: Floats
    """Values `[B]` for the player to move: from -1 to 1, or returns in games scored by rewards."""
    wdl: Floats | None
    """Probabilities of win, draw and loss for the player to move, `[B, 3]`; None unless the model is `alphazero`."""


class Unrolled(NamedTuple):
    """The evaluation of B positions and of K actions after each in the learned model."""

    priors: Floats
    """Priors `[B, K + 1, A]`: over the legal actions of the position, then over all actions."""
    values: Floats
    """Values `[B, K + 1]` for the player to move."""
    rewards: Floats
    """Rewards `[B, K]` of the actions, for the player who takes the action."""


class Network:
    """A network of one weights version. Calls release the interpreter lock, and threads may share a network."""

    def __init__(self, manifest: str, weights: bytes, *, precision: str = "f32", board: str | None = None) -> None:
        """Loads weights: the manifest as JSON, as in the file `v000001.json` of a run, and the safetensors file.

        The precision is `f32`, `bf16` or `auto`. A network with pooled heads also fits another board of the game, such
        as `go-13`. Raises `Error` if the weights are damaged, or do not fit the manifest or the board.
        """
        self._native = _zerofleet.Network(manifest, weights, precision, board)
        self.architecture: dict[str, Any] = json.loads(self._native.architecture)
        """Architecture of the network, as in the manifest."""
        self.game = self._native.game
        """Name of the game, with the board."""
        self.model = self._native.model
        """Model: `alphazero`, `alphazero_returns`, `muzero` or `stochastic_muzero`."""
        self.version = self._native.version
        """Weights version."""
        self.training_step = self._native.training_step
        """Training step after which the version was published."""
        self._shape = tuple(self.architecture[key] for key in ("planes", "height", "width"))
        self._actions: int = self.architecture["actions"]

    @classmethod
    def load(
        cls, source: Source, *, version: int | None = None, precision: str = "f32", board: str | None = None
    ) -> Network:
        """Loads a run, a version of a run, a model folder, a manifest next to the weights or a bundled model.

        A model folder has `config.json` and `model.safetensors`. A run is loaded with the latest weights, or with
        `version`.
        """
        manifest, weights = read_weights(source, version)
        return cls(manifest, weights, precision=precision, board=board)

    def __call__(self, observations: ArrayLike, legal: ArrayLike) -> Evaluation:
        """Evaluates observations `[B, C, H, W]` with true for each legal action `[B, A]`, or one position without B.

        Raises `ValueError` for a wrong shape, a number that is not finite, or a position without a legal action.
        """
        planes, mask = self._checked(observations, legal)
        priors, values, _, wdl = self._native._evaluate(planes.tobytes(), mask.tobytes(), b"")
        batch = planes.shape[:-3]
        return Evaluation(
            array(priors, np.float32, (*batch, self._actions)),
            array(values, np.float32, batch),
            array(wdl, np.float32, (*batch, 3)) if self.model == "alphazero" else None,
        )

    def unroll(self, observations: ArrayLike, legal: ArrayLike, actions: ArrayLike) -> Unrolled:
        """Evaluates positions, and the states after each of K actions in the learned model of a `muzero` network.

        Observations are `[B, C, H, W]`, legal actions `[B, A]`, and actions integers `[B, K]`. In a game for two
        players, the players alternate. Raises `ValueError` as a call does, and for another model.
        """
        planes, mask = self._checked(observations, legal)
        taken, batch = np.asarray(actions), planes.shape[:-3]
        if taken.ndim != 2 or taken.shape[:1] != batch or (taken.dtype.kind not in "iu" and taken.size > 0):
            raise ValueError(f"actions must be integers of the shape [B, K], got {taken.dtype} {taken.shape}")
        if ((taken < 0) | (taken >= self._actions)).any():
            raise ValueError(f"actions must be from 0 to {self._actions - 1}")
        steps = taken.shape[1]
        evaluated = self._native._evaluate(planes.tobytes(), mask.tobytes(), taken.astype("<u2").tobytes())
        priors, values, rewards, _ = evaluated
        return Unrolled(
            array(priors, np.float32, (*batch, steps + 1, self._actions)),
            array(values, np.float32, (*batch, steps + 1)),
            array(rewards, np.float32, (*batch, steps)),
        )

    def _checked(self, observations: ArrayLike, legal: ArrayLike) -> tuple[Floats, Mask]:
        """Returns observations `[B, C, H, W]` and legal actions `[B, A]`, or both without B."""
        planes, mask = np.asarray(observations, "<f4"), np.asarray(legal, np.bool_)
        if planes.ndim not in (3, 4) or planes.shape[-3:] != self._shape:
            raise ValueError(f"observations must have the shape [B, {', '.join(map(str, self._shape))}]")
        if mask.shape != (*planes.shape[:-3], self._actions):
            raise ValueError(f"legal actions must have the shape [B, {self._actions}] of B observations")
        return planes, mask

    def __repr__(self) -> str:
        return repr(self._native)


def path_of(source: Source) -> Path:
    """Returns the path of a source. The first use of a version of another machine downloads the file."""
    path = Path(source if isinstance(source, (str, os.PathLike)) else source.path)
    if path.name in ("config.json", "model.safetensors") and (path.parent / "config.json").is_file():
        return path.parent
    folders = [os.environ.get("ZEROFLEET_MODELS"), Path(__file__).parent / "models"]
    bundled = [Path(folder) / path for folder in folders if folder and not path.exists()]
    return next((found for found in bundled if (found / "config.json").is_file()), path)


def read_weights(source: Source, version: int | None = None) -> tuple[str, bytes]:
    """Returns the manifest and the weights of a source; of a run the latest, or a version that the run keeps.

    Raises `FileNotFoundError` if there are no weights at the path.
    """
    path = path_of(source)
    if (path / "config.json").is_file():
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
        if not isinstance(config, dict) or config.get("library_name") != "zerofleet" or "weights" not in config:
            raise ValueError(f"{path / 'config.json'} does not describe a network of zerofleet")
        return json.dumps(config["weights"]), (path / "model.safetensors").read_bytes()
    if not path.is_file():
        kept = manifests(path)
        number = max(kept, default=0) if version is None else version
        if number not in kept:
            names = ", ".join(f"v{number}" for number in kept) or "none"
            wanted = "weights" if version is None else f"weights v{version}"
            raise FileNotFoundError(f"{path} is no model folder, and has no {wanted}; kept versions: {names}")
        path = kept[number]
    return path.with_suffix(".json").read_text(encoding="utf-8"), path.with_suffix(".safetensors").read_bytes()
