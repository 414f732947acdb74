"""Environments whose actions or observations have spaces that zerofleet does not take."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Mission(spaces.Space):
    """Texts that Gymnasium cannot flatten, as those of Minigrid."""

    def __init__(self):
        super().__init__(dtype=str)

    def sample(self):
        return "go to the door"

    def contains(self, x):
        return isinstance(x, str)


class Sampling(gymnasium.Env):
    """Observes samples of a space, and raises an exception for an action that is not in another."""

    def __init__(self, observations=None, actions=None):
        self.observation_space = observations or spaces.Box(0, 1, (3,), np.float32)
        self.action_space = actions or spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        return self.observation_space.sample(), 1.0, False, False, {}


def picture_and_mission():
    picture = spaces.Box(0, 255, (7, 7, 3), np.uint8)
    return Sampling(spaces.Dict(direction=spaces.Discrete(4), image=picture, mission=Mission()))


def numbers_and_mission():
    return Sampling(spaces.Dict(direction=spaces.Discrete(4), speed=spaces.Box(0, 1, (2,)), mission=Mission()))


def tuple_with_mission():
    return Sampling(spaces.Tuple([Mission(), spaces.Discrete(4), spaces.Box(0, 1, (2,))]))


def text():
    return Sampling(spaces.Text(5))


def four_dimensions():
    return Sampling(spaces.Box(0, 1, (2, 3, 4, 5)))


def torques():
    return Sampling(actions=spaces.Box(-1, 1, (2, 2)))


def gears():
    return Sampling(actions=spaces.MultiDiscrete([3, 2], start=[1, -4]))


def keys():
    return Sampling(actions=spaces.MultiBinary(3))


def nested():
    pair = spaces.Tuple([spaces.Discrete(2, start=5), spaces.MultiBinary(2)])
    return Sampling(actions=spaces.Dict(a=spaces.Discrete(3), b=spaces.Box(-1, 1, (2,)), c=pair))


def both():
    return Sampling(spaces.Dict(a=spaces.Discrete(3), b=spaces.Discrete(2)), spaces.MultiDiscrete([3, 2]))


def sequence():
    return Sampling(spaces.Sequence(spaces.Discrete(3)))


def unbounded():
    return Sampling(actions=spaces.Box(-np.inf, np.inf, (2,)))


def too_many():
    return Sampling(actions=spaces.MultiDiscrete([50, 50, 50]))
