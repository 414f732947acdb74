"""Games and environments by the rules of zerofleet: single positions, and many games that advance together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from . import _zerofleet

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
Scalar = TypeVar("Scalar", bound=np.generic)


class Game(_zerofleet.Game):
    """The rules of a game or an environment, selected by name: `Game("connect_four")`, `Game("hex-7")`.

    Games with equal names are equal. A pickled game is restored by name.
    """

    __slots__ = ()

    def start(self, seed: int = 0) -> Position:
        """Returns the position before the first action of the episode with this seed."""
        return Position(super().start(seed))

    def position(self, moves: Iterable[int | str], seed: int = 0) -> Position:
        """Returns the position after these moves: numbers of actions, or text in the notation of the game.

        Raises `ValueError` for a move that is illegal or unreadable.
        """
        return Position(super().position(moves, seed))


class Position(_zerofleet.Position):
    """A position of a game. It never changes: `play` returns another position.

    Positions are equal if they are of one game and have the same future; the actions before may differ. A pickled
    position is restored from the seed and the actions.
    """

    __slots__ = ()

    @property
    def game(self) -> Game:
        """The game."""
        return Game(super().game)

    def play(self, action: int | str) -> Position:
        """Returns the position after an action, given by number or in the notation of the game.

        Raises `ValueError` for an action that is illegal or unreadable.
        """
        return Position(super().play(action))

    def observation(self) -> Floats:
        """Returns the observation of the player to move, float32 `[C, H, W]`."""
        return array(self._observation(), np.float32, super().game.observation_shape)

    def legal_mask(self) -> Mask:
        """Returns true for each legal action, bool `[A]`; all false once the game is over."""
        return array(self._legal(), np.bool_)

    def render(self) -> str:
        """Returns the board as a few lines of text."""
        return str(self)


class VectorGames(_zerofleet.VectorGames):
    """N games that advance together, `VectorGames("cartpole-v1", 64, seed=1)`: one call plays an action in each.

    The first episode of game i has the seed `seed + i`. A game that is over ignores actions until `reset`.
    """

    __slots__ = ()

    @property
    def game(self) -> Game:
        """The game."""
        return Game(super().game)

    def step(self, actions: npt.ArrayLike) -> tuple[Floats, Mask, Mask]:
        """Plays one action in each game, integers `[N]`; actions of games that are over are ignored.

        Returns the rewards `[N]` for the players who chose the actions (in a game for two players 1 for a win, −1 for a
        loss, else 0), and true for the games that this step has terminated `[N]` and truncated `[N]`. Raises
        `ValueError` for an illegal action, with the index of the game; then no game has changed.
        """
        numbers = np.asarray(actions)
        if numbers.dtype.kind not in "iu":
            raise TypeError(f"actions are integers, not {numbers.dtype}")
        rewards, terminated, truncated = self._step(numbers.astype(np.int64).tobytes())
        return array(rewards, np.float32), array(terminated, np.bool_), array(truncated, np.bool_)

    def observations(self) -> Floats:
        """Returns the observation of the player to move in each game, float32 `[N, C, H, W]`."""
        return array(self._observations(), np.float32, (-1, *super().game.observation_shape))

    def legal_masks(self) -> Mask:
        """Returns true for each legal action, bool `[N, A]`; all false in games that are over."""
        return array(self._legal(), np.bool_, (-1, super().game.actions))

    def to_move(self) -> npt.NDArray[np.uint8]:
        """Returns the index of the player to move in each game, 0 or 1 `[N]`; unspecified in games that are over."""
        return array(self._to_move(), np.uint8)


def observations(game: _zerofleet.Game, episodes: Iterable[tuple[int, Sequence[int]]]) -> Floats:
    """Returns the observations float32 `[B, C, H, W]` after the actions of B episodes, given as `(seed, actions)`.

    At most 65,536 episodes, replayed without the interpreter lock. Raises `ValueError` for an illegal action, with the
    index of the episode.
    """
    listed = [(seed, list(actions)) for seed, actions in episodes]
    return array(_zerofleet._observations(game, listed), np.float32, (-1, *game.observation_shape))


def array(data: bytes, kind: type[Scalar], shape: tuple[int, ...] = (-1,)) -> npt.NDArray[Scalar]:
    """Returns a writable array; `bytes` are not."""
    return np.frombuffer(data, kind).reshape(shape).copy()
