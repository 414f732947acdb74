"""Environments without gymnasium: one that counts, and that misbehaves on request."""

import os
import sys
import time

import numpy as np


class Discrete:
    shape = ()

    def __init__(self, n, start=0):
        self.n, self.start = n, start


class Box:
    def __init__(self, shape, dtype=np.float32):
        self.shape, self.dtype = shape, np.dtype(dtype)


class Dict:
    spaces = {"a": Discrete(2)}


class Limit:
    def __init__(self, max_episode_steps):
        self.max_episode_steps = max_episode_steps


DIE, HANG, NAN, INFINITE_REWARD, WRONG_SHAPE, RAISE, QUIT, WRONG_RESULT, GRANDCHILD = range(10, 19)


class Counting:
    """Observes [seed, steps, last action, process id]; the reward is the sum of steps and action.

    Terminates after as many steps as the seed, or is truncated after 100. Actions from 10 on misbehave.
    """

    def __init__(self, actions=20, start=0, limit=100):
        self.action_space = Discrete(actions, start)
        self.observation_space = Box((4,))
        self.spec = Limit(limit)
        self.limit = limit

    def reset(self, *, seed):
        print("an environment may print", flush=True)
        self.seed, self.steps, self.last = seed, 0, -1
        return self.observation(), {}

    def step(self, action):
        self.steps += 1
        self.last = action
        observation, reward = self.observation(), float(self.steps + action)
        if action == DIE:
            print("the environment is on fire", file=sys.stderr)
            os._exit(3)
        if action == HANG:
            time.sleep(3600)
        if action == NAN:
            observation[1] = np.nan
        if action == INFINITE_REWARD:
            reward = float("inf")
        if action == WRONG_SHAPE:
            observation = observation[:3]
        if action == RAISE:
            raise RuntimeError("the rules are broken")
        if action == QUIT:
            sys.exit("bye")
        if action == WRONG_RESULT:
            return observation, reward, False, {}
        if action == GRANDCHILD:
            self.last = os.fork()
            if self.last == 0:
                time.sleep(3600)
            observation = self.observation()
        return observation, reward, self.steps == self.seed, self.limit is not None and self.steps >= self.limit, {}

    def observation(self):
        return np.array([self.seed, self.steps, self.last, os.getpid()], np.float32)


class Pictures(Counting):
    """Observes a picture [H, W, C] of bytes, whose pixel (row, column) has the channels (10 steps + row, column)."""

    def __init__(self):
        super().__init__()
        self.observation_space = Box((3, 4, 2), np.uint8)

    def observation(self):
        rows, columns = np.mgrid[:3, :4].astype(np.uint8)
        return np.stack([10 * self.steps + rows, columns], axis=-1).astype(np.uint8)


class BrokenStart(Counting):
    def reset(self, *, seed):
        super().reset(seed=seed)
        return np.full(4, np.nan, np.float32), {}


class OldGym(Counting):
    def reset(self, *, seed):
        return super().reset(seed=seed)[0]


def unlimited():
    return Counting(limit=None)


def continuous():
    environment = Counting()
    environment.action_space = Box((2,))
    return environment


def dictionary():
    environment = Counting()
    environment.observation_space = Dict()
    return environment


def broken():
    raise OSError("no display")


def hanging():
    time.sleep(3600)


def dying():
    """Dies while it is made."""
    sys.stderr.write("no licence")
    os._exit(7)
