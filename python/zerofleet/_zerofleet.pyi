"""The extension module. Arrays are `bytes` here; the classes of `zerofleet` return NumPy arrays."""

from collections.abc import Iterable
from typing import Literal

class Error(Exception):
    """A failure of zerofleet: an unknown game, or a file that is no network."""

def game_names() -> list[str]:
    """Returns the names of all games; of a game with many boards the smallest, a usual and the largest."""

def _observations(game: Game, episodes: list[tuple[int, list[int]]]) -> bytes:
    """Returns the observations float32 `[B, C, H, W]` after the actions of each of B episodes `(seed, actions)`."""

class Game:
    """The rules of a game or an environment, by name: `Game("connect_four")`."""

    def __init__(self, name: str | Game) -> None: ...
    @property
    def name(self) -> str:
        """Name, with the board size if there are several: `hex-11`."""
    @property
    def actions(self) -> int:
        """A, the number of actions, legal or not."""
    @property
    def observation_shape(self) -> tuple[int, int, int]:
        """Shape of an observation, `(C, H, W)`; `(C, 1, 1)` for a vector."""
    @property
    def players(self) -> Literal[1, 2]:
        """Number of players."""
    @property
    def scoring(self) -> Literal["outcome", "rewards"]:
        """Scoring of an episode: by a win, a draw or a loss, or by the sum of rewards."""
    @property
    def max_plies(self) -> int:
        """Maximum number of actions in an episode."""
    @property
    def preset(self) -> str:
        """The preset of a run, as TOML."""
    def start(self, seed: int = 0) -> Position:
        """Returns the position before the first action of the episode with this seed."""
    def position(self, moves: Iterable[int | str], seed: int = 0) -> Position:
        """Returns the position after these moves: numbers of actions, or text in the notation of the game."""
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

class Position:
    """A position of a game. It never changes: `play` returns another position."""

    def __init__(self, position: Position) -> None: ...
    @property
    def game(self) -> Game:
        """The game."""
    @property
    def to_move(self) -> Literal[0, 1]:
        """Index of the player to move; unspecified once the game is over."""
    @property
    def is_over(self) -> bool:
        """True once the game is over."""
    @property
    def outcome(self) -> Literal["first_wins", "draw", "second_wins", "finished", "truncated"] | None:
        """`None` before the end; `"finished"` or `"truncated"` for games scored by rewards."""
    @property
    def returns(self) -> tuple[float, ...]:
        """Return of each player so far: 1, 0 or −1, or the sum of rewards."""
    @property
    def reward(self) -> float:
        """Reward of the last action, for the player who chose the action."""
    @property
    def actions(self) -> list[int]:
        """Numbers of the actions from the start."""
    @property
    def seed(self) -> int:
        """Seed of the episode."""
    def legal_actions(self) -> list[int]:
        """Returns the numbers of the legal actions in ascending order; none once the game is over."""
    def _legal(self) -> bytes:
        """Returns one byte per action `[A]`, 1 for a legal action."""
    def _observation(self) -> bytes:
        """Returns the observation of the player to move, float32 `[C, H, W]`."""
    def play(self, action: int | str) -> Position:
        """Returns the position after an action, given by number or in the notation of the game."""
    def action_name(self, action: int) -> str:
        """Returns the action in the notation of the game."""
    def parse_action(self, text: str) -> int:
        """Returns the number of the action in the notation of the game, legal or not."""
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

class VectorGames:
    """N games that advance together, each until the end. A game that is over waits for `reset`."""

    def __init__(self, game: str | Game, count: int, seed: int = 0) -> None: ...
    @property
    def game(self) -> Game:
        """The game."""
    @property
    def seeds(self) -> list[int]:
        """Seed of the episode in each game."""
    def __len__(self) -> int: ...
    def reset(self, seed: int | None = None, indices: Iterable[int] | None = None) -> None:
        """Starts an episode in the games with these indices, or in all games. With a seed, game i starts from
        `seed + i`; without one, from a seed that follows from the previous seed of the game."""
    def _step(self, actions: bytes) -> tuple[bytes, bytes, bytes]:
        """Plays one action in each game, int64 `[N]`; returns rewards float32 `[N]`, and the flags `[N]` of games that
        this step has terminated and truncated."""
    def _observations(self) -> bytes:
        """Returns the observation of the player to move in each game, float32 `[N, C, H, W]`."""
    def _legal(self) -> bytes:
        """Returns one byte per game and action `[N, A]`, 1 for a legal action."""
    def _to_move(self) -> bytes:
        """Returns the index of the player to move in each game, one byte `[N]`."""
    def outcome(self, index: int) -> Literal["first_wins", "draw", "second_wins", "finished", "truncated"] | None:
        """Returns the outcome of game `index`, named as by `Position.outcome`; `None` before the end."""
