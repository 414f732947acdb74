"""The extension module. Arrays are `bytes` here; the classes of `zerofleet` return NumPy arrays."""

from collections.abc import Callable, Iterable
from typing import Literal, final

from typing_extensions import Self, disjoint_base

__all__ = ["Analysis", "Error", "Game", "Network", "Position", "Search", "VectorGames", "_observations", "game_names"]

class Error(Exception):
    """A failure of zerofleet: an unknown game, or a file that is no network."""

def game_names() -> list[str]:
    """Returns the names of all games; of a game with many boards the smallest, a usual and the largest."""

def _observations(game: Game, episodes: list[tuple[int, list[int]]]) -> bytes:
    """Returns the observations float32 `[B, C, H, W]` after the actions of each of B episodes `(seed, actions)`."""

@disjoint_base
class Game:
    """The rules of a game or an environment, by name: `Game("connect_four")`."""

    def __new__(cls, name: str | Game) -> Self: ...
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
        """Returns the position after these moves: numbers of actions, or text in the notation of the game. A single
        text has moves separated by whitespace."""
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

@disjoint_base
class Position:
    """A position of a game. It never changes: `play` returns another position."""

    def __new__(cls, position: Position) -> Self: ...
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

@disjoint_base
class VectorGames:
    """N games that advance together, each until the end. A game that is over waits for `reset`."""

    def __new__(cls, game: str | Game, count: int, seed: int = 0) -> Self: ...
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

@final
class Network:
    """A network of one weights version, evaluated on the CPU."""

    def __new__(
        cls, manifest_json: str, weights: bytes, precision: str = "f32", board: str | None = None
    ) -> Network: ...
    @staticmethod
    def _manifest(architecture_json: str, weights: bytes, version: int = 1, training_step: int = 0) -> str:
        """Returns the manifest of weights as JSON, for an architecture as JSON."""
    @property
    def game(self) -> str:
        """Name of the game, with the board."""
    @property
    def version(self) -> int:
        """Weights version."""
    @property
    def training_step(self) -> int:
        """Training step after which the version was published."""
    @property
    def architecture(self) -> str:
        """Architecture of the network as JSON."""
    @property
    def model(self) -> Literal["alphazero", "alphazero_returns", "muzero", "stochastic_muzero"]:
        """Model that the network implements."""
    def _evaluate(self, observations: bytes, legal: bytes, actions: bytes) -> tuple[bytes, bytes, bytes, bytes]:
        """Evaluates observations float32 `[B, C, H, W]` with legal actions, one byte each, `[B, A]`, and in a `muzero`
        network K actions after each, uint16 `[B, K]`. Returns float32: priors `[B, K + 1, A]`, values `[B, K + 1]`,
        rewards `[B, K]`, and win, draw and loss `[B, 3]`, which are empty unless the model is `alphazero`."""

@final
class Search:
    """A search with a network. Keyword arguments are keys of the section `[search]` of a run file, and `discount`."""

    def __new__(
        cls,
        network: Network,
        *,
        algorithm: str = "puct",
        c_base: float = 19652.0,
        c_init: float = 1.25,
        fpu_reduction: float = 0.2,
        dirichlet_total: float = 10.83,
        dirichlet_fraction: float = 0.25,
        solver: bool = True,
        early_stop: bool = True,
        gumbel_considered_actions_max: int = 16,
        gumbel_c_visit: float = 50.0,
        gumbel_c_scale: float = 1.0,
        gumbel_value_span: str = "tree",
        discount: float = 1.0,
    ) -> Search: ...
    def analyse(
        self,
        position: Position,
        simulations: int,
        seed: int = 0,
        on_progress: Callable[[Analysis], object] | None = None,
    ) -> Analysis:
        """Searches a position in which the game is not over. There are at most 10,000,000 simulations, and at most as
        many as take about 8 GiB. `on_progress` gets the analysis so far about every 20 ms, except in a learned model.
        """

@final
class Analysis:
    """The result of a search. Lists with one element for each action are in the order of `actions`; values are for the
    player to move."""

    @property
    def actions(self) -> list[int]:
        """Legal actions, in ascending order."""
    @property
    def visit_counts(self) -> list[int]:
        """Completed visits of each action."""
    @property
    def priors(self) -> list[float]:
        """Prior of each action from the network."""
    @property
    def policy(self) -> list[float]:
        """Search policy; the priors after 0 simulations."""
    @property
    def action_values(self) -> list[float]:
        """Value of each action."""
    @property
    def value(self) -> float:
        """Expected value of the search policy."""
    @property
    def network_value(self) -> float:
        """Value from the network."""
    @property
    def principal_variation(self) -> list[int]:
        """Best actions of both players, from the position."""
    @property
    def best(self) -> int:
        """Action to play."""
    @property
    def proven(self) -> Literal["win", "draw", "loss"] | None:
        """Proven result; None if nothing is proven."""
    @property
    def simulations(self) -> int:
        """Number of completed simulations."""
