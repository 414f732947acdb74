"""A corridor of nine cells without gymnasium, some of whose episodes fail in every way.

The agent starts at a random cell and has to reach the right end; a step costs 0.1. The seed of an episode decides whether
and how it fails.
"""

import os
import time

import numpy as np

CELLS = 9
STEPS_MAX = 30
# The shares of episodes that fail: by NaN, by an exception, by the end of the process, by a hang.
FAULTS = (("nan", 0.03), ("raise", 0.03), ("die", 0.004), ("hang", 0.003))


class Discrete:
    shape = ()
    n = 2
    start = 0


class Box:
    shape = (CELLS,)
    dtype = np.dtype(np.float32)


class Limit:
    max_episode_steps = STEPS_MAX


class Corridor:
    action_space = Discrete()
    observation_space = Box()
    spec = Limit()

    def __init__(self, is_faulty=True):
        self.is_faulty = is_faulty

    def reset(self, *, seed):
        random = np.random.default_rng(seed)
        self.cell = int(random.integers(CELLS - 1))
        self.steps = 0
        self.fault, left = None, float(random.random())
        for fault, share in FAULTS if self.is_faulty else ():
            if 0 <= left < share:
                self.fault = fault
            left -= share
        return self.observation(), {}

    def step(self, action):
        self.steps += 1
        self.cell = max(0, self.cell + (1 if action == 1 else -1))
        if self.fault == "raise":
            raise RuntimeError("the corridor is closed")
        if self.fault == "die":
            os._exit(3)
        if self.fault == "hang":
            time.sleep(3600)
        observation = self.observation()
        if self.fault == "nan":
            observation[0] = np.nan
        return observation, -0.1, self.cell == CELLS - 1, self.steps >= STEPS_MAX, {}

    def observation(self):
        return np.eye(CELLS, dtype=np.float32)[self.cell]


class Hanging(Corridor):
    """Hangs in its third episode, once it has written so to a file."""

    def __init__(self, file):
        super().__init__(is_faulty=False)
        self.file, self.episodes = file, 0

    def reset(self, *, seed):
        self.episodes += 1
        return super().reset(seed=seed)

    def step(self, action):
        if self.episodes == 3:
            with open(self.file, "w"):
                time.sleep(3600)
        return super().step(action)


class Unseeded(Corridor):
    """Has the interface of the older gym."""

    def reset(self):
        return super().reset(seed=0)


class Torques(Corridor):
    """Has a continuous action."""

    def __init__(self):
        super().__init__(is_faulty=False)
        self.action_space = type("Box", (), {"shape": (1,), "dtype": np.dtype(np.float32)})()
        self.action_space.low, self.action_space.high = np.array([-1.0]), np.array([1.0])


def faulty():
    return Corridor()


def sound():
    return Corridor(is_faulty=False)
