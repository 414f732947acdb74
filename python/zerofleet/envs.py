"""Gymnasium environments over the games: one episode at a time (`make`) or many in parallel (`make_vec`).

The import registers each game as `zerofleet/NAME-v0` with Gymnasium.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from ._zerofleet import game_names
from .errors import missing
from .games import Game, Position, VectorGames

try:
    import gymnasium
    from gymnasium import spaces
    from gymnasium.error import ResetNeeded
    from gymnasium.utils import seeding
    from gymnasium.vector import AutoresetMode, VectorEnv
    from gymnasium.vector.utils import batch_space
except ImportError as error:
    raise missing("gymnasium", "an environment") from error

Observation = npt.NDArray[np.float32]
Seat = Literal["random", 0, 1]
Illegal = Literal["loss", "error"]
Mask = npt.NDArray[np.bool_]
Moves = Callable[[Sequence[Position]], Sequence[int]]
# Start seeds are drawn below this number.
SEEDS = 2**63


class GameEnv(gymnasium.Env[Observation, Any]):
    """Episodes of one game for one agent.

    Observations are float32 `[C, H, W]`, from the view of the player to move. Actions are `0..A`, and
    `info["action_mask"]`, int8 `[A]`, has a 1 for each legal action. An environment for one player gives the rewards of
    the game. In a game for two, the opponent moves within `reset` and `step`, and the last step alone has a reward: 1
    for a win of the agent, -1 for a loss, 0 for a draw.

    Args:
        name: the game, such as `"connect_four"` or `"cartpole-v1"`.
        opponent: `"random"`, a function from a position to an action, an object with such a method `play`, or anything
            that `zerofleet.Player` accepts: a run, weights, a path.
        seat: the player that the agent is, drawn for each episode with `"random"`. Player 0 moves first.
        illegal: with `"loss"`, an illegal action ends the episode with the reward -1; with `"error"`, a ValueError.
        render_mode: `"ansi"` for text, or None.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"], "render_fps": 4}  # type: ignore[misc]

    def __init__(
        self,
        name: str,
        *,
        opponent: object = "random",
        seat: Seat = "random",
        illegal: Illegal = "loss",
        render_mode: str | None = None,
    ) -> None:
        if render_mode not in (None, "ansi"):
            raise ValueError(f'render_mode is "ansi" or None, not {render_mode!r}')
        self.game, self._opponent = checked(name, opponent, seat, illegal)
        self.render_mode = render_mode
        self.observation_space = observation_space(self.game)
        self.action_space = spaces.Discrete(self.game.actions)
        self._seat, self._illegal = seat, illegal
        self._agent = 0
        self._position: Position | None = None
        self._ended = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Starts an episode, in which the opponent has moved first if the agent is player 1."""
        super().reset(seed=seed)
        self._agent, start = draw_episode(self.np_random, self.game, self._seat)
        self._position = self._after_opponent(self.game.start(start))
        self._ended = False
        return self._position.observation(), action_mask(self._position)

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Plays an action of the agent, then the moves of the opponent."""
        position = self._position
        if position is None or self._ended:
            raise ResetNeeded("the episode has ended: call reset before step")
        if not 0 <= action < self.game.actions:
            raise ValueError(f"action {action} is not in 0..{self.game.actions}")
        if self._illegal == "loss" and not position.legal_mask()[action]:
            self._ended = True
            mask = np.zeros(self.game.actions, np.int8)
            return position.observation(), -1.0, True, False, {"action_mask": mask}
        position = self._after_opponent(position.play(int(action)))
        self._position, self._ended = position, position.is_over
        reward = 0.0
        if self.game.players == 1:
            reward = float(position.reward)
        elif position.is_over:
            reward = float(position.returns[self._agent])
        truncated = position.outcome == "truncated"
        return position.observation(), reward, self._ended and not truncated, truncated, action_mask(position)

    def render(self) -> Any:
        """Returns the position as text."""
        return self._position.render() if self.render_mode == "ansi" and self._position is not None else None

    def _after_opponent(self, position: Position) -> Position:
        while not position.is_over and position.to_move != self._agent:
            if self._opponent is None:
                action = int(self.np_random.choice(position.legal_actions()))
            else:
                (action,) = self._opponent([position])
            position = position.play(action)
        return position


@dataclass
class Step:
    """Results of a step of N games, from the view of the agents."""

    rewards: npt.NDArray[np.float64]
    terminated: Mask
    truncated: Mask

    def ended(self) -> Mask:
        """Returns the games with an episode that has ended."""
        return self.terminated | self.truncated


class VectorGameEnv(VectorEnv[Observation, npt.NDArray[np.int64], npt.NDArray[Any]]):
    """Episodes of `num_envs` games that step together, with the semantics of `GameEnv`.

    Observations are float32 `[N, C, H, W]`, `infos["action_mask"]` is int8 `[N, A]`. After the end of an episode, the
    next step ignores the action of that game, starts an episode and returns the reward 0 (`AutoresetMode.NEXT_STEP`).
    Game i has the seed `seed + i`, and equals `GameEnv` with that seed, except against a random opponent: random moves
    of all games are drawn at once.
    """

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # type: ignore[misc]

    def __init__(
        self,
        name: str,
        num_envs: int,
        *,
        opponent: object = "random",
        seat: Seat = "random",
        illegal: Illegal = "loss",
        seed: int | None = None,
    ) -> None:
        self.game, self._opponent = checked(name, opponent, seat, illegal)
        self.num_envs = num_envs
        self.single_observation_space = observation_space(self.game)
        self.single_action_space = spaces.Discrete(self.game.actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._seat, self._illegal = seat, illegal
        self._games = VectorGames(self.game, num_envs, 0)
        self._agents = np.zeros(num_envs, np.int64)
        self._starts = [0] * num_envs
        self._ended: Mask = np.ones(num_envs, np.bool_)
        self._first_seed = seed
        self._generators: list[np.random.Generator] = []
        # The positions of the games, for opponents that read positions.
        self._positions: list[Position] = [self.game.start()] * num_envs

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Starts an episode of every game; without a seed, the first call uses the seed of the constructor."""
        seed, self._first_seed = (self._first_seed if seed is None else seed), None
        if seed is not None or not self._generators:
            super().reset(seed=seed)
            seeds = [None if seed is None else seed + game for game in range(self.num_envs)]
            self._generators = [seeding.np_random(seed)[0] for seed in seeds]
        self._begin(np.ones(self.num_envs, np.bool_))
        self._ended = np.zeros(self.num_envs, np.bool_)
        self._answer(~self._ended, Step(np.zeros(self.num_envs), self._ended.copy(), self._ended.copy()))
        return self._games.observations(), self._infos()

    def step(
        self, actions: npt.NDArray[np.int64]
    ) -> tuple[Observation, npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], dict[str, Any]]:
        """Plays an action in each game, then the moves of the opponents; games that ended before start again."""
        if not self._generators:
            raise ResetNeeded("call reset before step")
        actions = np.asarray(actions, np.int64)
        if actions.shape != (self.num_envs,) or not ((actions >= 0) & (actions < self.game.actions)).all():
            raise ValueError(f"{self.num_envs} actions in 0..{self.game.actions} are needed, not {actions}")
        masks = self._games.legal_masks()
        illegal = ~self._ended & ~masks[np.arange(self.num_envs), actions]
        if self._illegal == "error" and illegal.any():
            raise ValueError(f"illegal actions in the games {np.flatnonzero(illegal).tolist()}")
        kept = self._games.observations() if illegal.any() else None
        step = Step(np.where(illegal, -1.0, 0.0), illegal.copy(), np.zeros(self.num_envs, np.bool_))
        started = self._ended
        self._play(~started & ~illegal, actions, step)
        self._begin(started)
        self._answer(started, step)
        self._ended = step.ended()
        observations, infos = self._games.observations(), self._infos()
        if kept is not None:
            observations = np.where(illegal[:, None, None, None], kept, observations)
            infos["action_mask"][illegal] = 0
        return observations, step.rewards, step.terminated, step.truncated, infos

    def _infos(self) -> dict[str, Any]:
        """Returns the masks, int8 `[N, A]`, in the form of `SyncVectorEnv`: `_KEY` names the games that have KEY."""
        masks = self._games.legal_masks().astype(np.int8)
        return {"action_mask": masks, "_action_mask": np.ones(self.num_envs, np.bool_)}

    def _begin(self, which: Mask) -> None:
        """Draws and starts an episode of each selected game."""
        for game in np.flatnonzero(which):
            self._agents[game], self._starts[game] = draw_episode(self._generators[game], self.game, self._seat)
            if self._opponent is not None:
                self._positions[game] = self.game.start(self._starts[game])
        self._restart(which)

    def _restart(self, which: Mask) -> None:
        for game in np.flatnonzero(which).tolist():
            # Game i of a reset starts from the seed plus i.
            self._games.reset((self._starts[game] - game) % 2**64, indices=[game])

    def _play(self, which: Mask, actions: npt.NDArray[np.int64], step: Step) -> None:
        """Plays an action in each selected game, and adds the results from the view of the agents.

        No game can wait: the other games play any legal action, and must be over or start again after the call.
        """
        movers = self._games.to_move()
        others = self._games.legal_masks().argmax(axis=1)
        rewards, terminated, truncated = self._games.step(np.where(which, actions, others))
        step.rewards[which] += np.where(movers == self._agents, rewards, -rewards)[which]
        step.terminated[which] |= terminated[which]
        step.truncated[which] |= truncated[which]
        if self._opponent is not None:
            for game in np.flatnonzero(which):
                self._positions[game] = self._positions[game].play(int(actions[game]))

    def _answer(self, started: Mask, step: Step) -> None:
        """Plays the move of each opponent to move. The started games of the other agents start again.

        The other games are over or have started in this step, since the players of all games alternate.
        """
        waiting: Mask = (self._games.to_move() != self._agents) & ~step.ended()
        if waiting.any():
            self._play(waiting, self._opponent_actions(waiting), step)
            self._restart(started & ~waiting)

    def _opponent_actions(self, waiting: Mask) -> npt.NDArray[np.int64]:
        if self._opponent is None:
            masks = self._games.legal_masks()
            # Draws above 0 for legal actions: the largest is uniform among them.
            draws = (1.0 - self.np_random.random(masks.shape, np.float32)) * masks
            drawn: npt.NDArray[np.int64] = draws.argmax(axis=1)
            return drawn
        games = np.flatnonzero(waiting)
        actions = np.zeros(self.num_envs, np.int64)
        actions[games] = self._opponent([self._positions[game] for game in games])
        return actions


make = GameEnv
make_vec = VectorGameEnv


def observation_space(game: Game) -> spaces.Space[Observation]:
    """Returns the space of observations, float32 `[C, H, W]`: planes in 0 to 1, vectors with any finite values."""
    _, height, width = game.observation_shape
    low, high = (0.0, 1.0) if height * width > 1 else (-np.inf, np.inf)
    box: spaces.Space[Any] = spaces.Box(low, high, game.observation_shape, np.float32)
    return box


def draw_episode(generator: np.random.Generator, game: Game, seat: Seat) -> tuple[int, int]:
    """Draws the player of the agent and the start seed of an episode."""
    drawn = int(generator.integers(2)) if seat == "random" and game.players == 2 else seat
    return (0 if drawn == "random" or game.players == 1 else drawn), int(generator.integers(SEEDS))


def action_mask(position: Position) -> dict[str, Any]:
    """Returns the info of a position: int8 `[A]`, 1 for each legal action."""
    return {"action_mask": position.legal_mask().astype(np.int8)}


def opponent_moves(opponent: Any) -> Moves | None:
    """Returns the moves of an opponent in several positions at once, or None for random moves."""
    if isinstance(opponent, str) and opponent == "random":
        return None
    if not callable(opponent) and not hasattr(opponent, "play"):
        from .player import Player

        opponent = Player(opponent)
    play: Any = getattr(opponent, "play", opponent)
    return lambda positions: [int(play(position)) for position in positions]


def checked(name: str, opponent: Any, seat: object, illegal: object) -> tuple[Game, Moves | None]:
    """Returns the game and the moves of the opponent. Raises a ValueError for another setting that does not exist."""
    if seat not in ("random", 0, 1):
        raise ValueError(f'seat is "random", 0 or 1, not {seat!r}')
    if illegal not in ("loss", "error"):
        raise ValueError(f'illegal is "loss" or "error", not {illegal!r}')
    game = Game(name)
    return game, opponent_moves(opponent) if game.players == 2 else None


for registered in game_names():
    gymnasium.register(
        f"zerofleet/{registered}-v0",
        entry_point="zerofleet.envs:GameEnv",
        vector_entry_point="zerofleet.envs:VectorGameEnv",
        kwargs={"name": registered},
    )
