"""PettingZoo environments over the games: players act in turn, each with a dict of observation and action mask."""

from __future__ import annotations

from typing import Any

import numpy as np

from .envs import draw_episode, observation_space
from .errors import missing
from .games import Game, Position

try:
    from gymnasium import spaces
    from gymnasium.utils import seeding
    from pettingzoo import AECEnv  # type: ignore[import-untyped]
    from pettingzoo.utils import wrappers  # type: ignore[import-untyped]
except ImportError as error:
    raise missing("pettingzoo", "an environment for several players") from error

Space = spaces.Space[Any]


def env(name: str, render_mode: str | None = None) -> AECEnv:
    """Returns the game with the usual checks: an illegal action ends the episode with the reward -1 for the player."""
    checked = wrappers.TerminateIllegalWrapper(raw_env(name, render_mode), illegal_reward=-1)
    return wrappers.OrderEnforcingWrapper(wrappers.AssertOutOfBoundsWrapper(checked))


class raw_env(AECEnv):  # type: ignore[misc]
    """A game without the checks of `env`: an illegal action is a ValueError.

    The agents are `player_0` and, in games for two, `player_1`. Observations are dicts of `observation`, float32
    `[C, H, W]` from the view of the player to move, and `action_mask`, int8 `[A]`, which is 0 for the other player.
    Rewards are the rewards of the game for one player; for two, 1, -1 or 0 at the end.
    """

    def __init__(self, name: str, render_mode: str | None = None) -> None:
        super().__init__()
        if render_mode not in (None, "ansi"):
            raise ValueError(f'render_mode is "ansi" or None, not {render_mode!r}')
        self.game = Game(name)
        self.render_mode = render_mode
        self.metadata = {"name": f"{name}_v0", "render_modes": ["ansi"], "is_parallelizable": False}
        self.possible_agents = [f"player_{player}" for player in range(self.game.players)]
        self.agents = self.possible_agents[:]
        mask = spaces.Box(0, 1, (self.game.actions,), np.int8)
        parts: dict[str, Space] = {"observation": observation_space(self.game), "action_mask": mask}
        self.observation_spaces = {agent: spaces.Dict(parts) for agent in self.agents}
        self.action_spaces: dict[str, Space] = {agent: spaces.Discrete(self.game.actions) for agent in self.agents}
        self._generator, _ = seeding.np_random()

    def observation_space(self, agent: str) -> Space:
        """Returns the space of observations, the same object for each call."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Space:
        """Returns the space of actions, the same object for each call."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Starts an episode; without a seed, the next one of the sequence of the last seed."""
        if seed is not None:
            self._generator, _ = seeding.np_random(seed)
        _, start = draw_episode(self._generator, self.game, 0)
        self.position: Position = self.game.start(start)
        self.agents = self.possible_agents[:]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        self.agent_selection = self.agents[self.position.to_move]

    def step(self, action: Any) -> None:
        """Plays an action of the selected agent; None for an agent after the end of the episode."""
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        position = self.position.play(int(action))
        self.position = position
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        if self.game.players == 1:
            self.rewards[agent] = float(position.reward)
        elif position.is_over:
            self.rewards = dict(zip(self.agents, map(float, position.returns), strict=True))
        if position.is_over:
            truncated = position.outcome == "truncated"
            self.terminations = dict.fromkeys(self.agents, not truncated)
            self.truncations = dict.fromkeys(self.agents, truncated)
        self.agent_selection = self.agents[position.to_move]
        self._accumulate_rewards()

    def observe(self, agent: str) -> dict[str, Any]:
        """Returns the observation, float32 `[C, H, W]`, and the action mask, int8 `[A]`, of an agent."""
        mask = self.position.legal_mask().astype(np.int8)
        if agent != self.agent_selection:
            mask = np.zeros_like(mask)
        return {"observation": self.position.observation(), "action_mask": mask}

    def render(self) -> str | None:
        """Returns the position as text."""
        return self.position.render() if self.render_mode == "ansi" else None
