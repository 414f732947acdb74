"""Networks of published weights, evaluated on the CPU by the kernels of the fleet."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _zerofleet

Floats = NDArray[np.float32]


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
        architecture: dict[str, Any] = json.loads(self._native.architecture)
        self.architecture = architecture
        """Architecture of the network, as in the manifest."""
        self._shape = (architecture["planes"], architecture["height"], architecture["width"])
        self._actions: int = architecture["actions"]

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        version: int | None = None,
        precision: str = "f32",
        board: str | None = None,
    ) -> Network:
        """Loads a model folder, a manifest next to the weights, or a run.

        A model folder has `config.json` and `model.safetensors`. A run is loaded with the latest weights, or with
        `version`.
        """
        manifest, weights = read_weights(path, version)
        return cls(manifest, weights, precision=precision, board=board)

    @property
    def game(self) -> str:
        """Name of the game, with the board."""
        return self._native.game

    @property
    def version(self) -> int:
        """Weights version."""
        return self._native.version

    @property
    def training_step(self) -> int:
        """Training step after which the version was published."""
        return self._native.training_step

    @property
    def model(self) -> str:
        """Model: `alphazero`, `alphazero_returns`, `muzero` or `stochastic_muzero`."""
        return self._native.model

    def __call__(self, observations: ArrayLike, legal: ArrayLike) -> Evaluation:
        """Evaluates observations `[B, C, H, W]` with true for each legal action `[B, A]`, or one position without B.

        Raises `ValueError` for a wrong shape, a number that is not finite, or a position without a legal action.
        """
        planes, mask = self._checked(observations, legal)
        count = len(planes)
        priors, values, _, wdl = self._native._evaluate(planes.tobytes(), mask.tobytes(), b"")
        evaluation = Evaluation(
            priors=_array(priors, (count, self._actions)),
            value=_array(values, (count,)),
            wdl=_array(wdl, (count, 3)) if self.model == "alphazero" else None,
        )
        if np.ndim(observations) == 4:
            return evaluation
        first = None if evaluation.wdl is None else evaluation.wdl[0]
        return Evaluation(evaluation.priors[0], evaluation.value[0:1].reshape(()), first)

    def unroll(self, observations: ArrayLike, legal: ArrayLike, actions: ArrayLike) -> Unrolled:
        """Evaluates positions, and the states after each of K actions in the learned model of a `muzero` network.

        Observations are `[B, C, H, W]`, legal actions `[B, A]`, and actions integers `[B, K]`. In a game for two
        players, the players alternate. Raises `ValueError` as a call does, and for another model.
        """
        planes, mask = self._checked(observations, legal)
        taken = np.asarray(actions)
        count = len(planes)
        if taken.ndim != 2 or len(taken) != count or not (np.issubdtype(taken.dtype, np.integer) or taken.size == 0):
            raise ValueError(f"actions must be integers of the shape [{count}, K], got {taken.dtype} {taken.shape}")
        if taken.size > 0 and not (taken.min() >= 0 and taken.max() < self._actions):
            raise ValueError(f"actions must be from 0 to {self._actions - 1}")
        steps = taken.shape[1]
        priors, values, rewards, _ = self._native._evaluate(
            planes.tobytes(), mask.tobytes(), taken.astype("<u2").tobytes()
        )
        return Unrolled(
            priors=_array(priors, (count, steps + 1, self._actions)),
            values=_array(values, (count, steps + 1)),
            rewards=_array(rewards, (count, steps)),
        )

    def _checked(self, observations: ArrayLike, legal: ArrayLike) -> tuple[Floats, NDArray[np.bool_]]:
        """Returns observations `[B, C, H, W]` and legal actions `[B, A]`."""
        planes = np.asarray(observations, dtype="<f4")
        mask = np.asarray(legal, dtype=np.bool_)
        if planes.ndim == 3:
            planes, mask = planes[None], mask[None]
        if planes.shape[1:] != self._shape:
            raise ValueError(f"observations must have the shape [B, {', '.join(map(str, self._shape))}]")
        if mask.shape != (len(planes), self._actions):
            raise ValueError(f"legal actions must have the shape [{len(planes)}, {self._actions}], got {mask.shape}")
        return planes, mask

    def __repr__(self) -> str:
        return repr(self._native)


def _array(values: bytes, shape: tuple[int, ...]) -> Floats:
    """Returns a writable array of little-endian float32 values."""
    return np.frombuffer(bytearray(values), dtype="<f4").reshape(shape)


def read_weights(path: str | os.PathLike[str], version: int | None = None) -> tuple[str, bytes]:
    """Returns the manifest and the weights of a model folder, a manifest or a run.

    Raises `FileNotFoundError` if there are no weights at the path.
    """
    path = Path(path)
    if path.is_file():
        return _published(path.with_suffix(".json"))
    if (path / "config.json").is_file():
        return _model_folder(path)
    if (path / "config.toml").is_file() or (path / "weights").is_dir():
        return _of_run(path, version)
    raise FileNotFoundError(f"{path} is not a model folder, a manifest of weights or a run")


def _published(manifest: Path) -> tuple[str, bytes]:
    return manifest.read_text(encoding="utf-8"), manifest.with_suffix(".safetensors").read_bytes()


def _model_folder(folder: Path) -> tuple[str, bytes]:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if not isinstance(config, dict) or config.get("library_name") != "zerofleet" or "weights" not in config:
        raise ValueError(f"{folder / 'config.json'} does not describe a network of zerofleet")
    return json.dumps(config["weights"]), (folder / "model.safetensors").read_bytes()


def _of_run(run: Path, version: int | None) -> tuple[str, bytes]:
    """Returns the latest version of a live or finished run, or `version`, which the arena may have kept."""
    # A live run may remove a version after it was listed: then there are later versions.
    for is_last in (False, False, True):
        kept = {int(path.stem[1:]): path for folder in ("arena", "weights") for path in _manifests(run / folder)}
        if version is None:
            listed = [int(path.stem[1:]) for path in _manifests(run / "weights")] or list(kept)
        else:
            listed = [number for number in kept if number == version]
        if not listed:
            names = ", ".join(f"v{number}" for number in sorted(kept)) or "none"
            wanted = "weights" if version is None else f"weights v{version}"
            raise FileNotFoundError(f"{run} has no {wanted}; kept versions: {names}")
        try:
            return _published(kept[max(listed)])
        except FileNotFoundError:
            if is_last:
                raise
    raise AssertionError("the last attempt returns or raises")


def _manifests(folder: Path) -> list[Path]:
    return [path for path in folder.glob("v*.json") if path.stem[1:].isdecimal()]


def search_settings(run: Path) -> dict[str, Any]:
    """Returns the keys of the section `[search]` of a run, and the discount; empty if there is no run file."""
    file = run / "config.toml"
    if not file.is_file():
        return {}
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        try:
            import tomli as tomllib
        except ImportError as error:
            raise ImportError("Python 3.10 reads run files with tomli: pip install tomli") from error
    config: Mapping[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    discount = config.get("run", {}).get("discount", 1.0)
    return {**config.get("search", {}), "discount": discount}
