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


def variables():
    """Shows the names of its variables, as a package could send them elsewhere."""
    raise OSError(" ".join(sorted(os.environ)))


class Reward(Counting):
    """Gives a reward that Python evaluates from a text."""

    def __init__(self, reward):
        super().__init__()
        self.reward = reward

    def step(self, action):
        observation, _, terminated, truncated, info = super().step(0)
        return observation, eval(self.reward, {"np": np}), terminated, truncated, info


class Faulty(Counting):
    """Works but for one fault."""

    def __init__(self, fault):
        super().__init__()
        self.fault = fault
        if fault == "reset takes no seed":
            self.reset = lambda: Counting.reset(self, seed=0)
        if fault == "a wrapper unpacks four values":
            self.step = self.unpack

    def reset(self, *, seed):
        observation, info = super().reset(seed=seed + 1000)
        if self.fault == "reset returns an observation":
            return observation
        if self.fault == "reset raises":
            raise RuntimeError("the board is lost")
        return observation, info

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(0)
        if self.steps < 3:
            return observation, reward, terminated, truncated, info
        if self.fault == "step returns four values":
            return observation, reward, terminated, info
        if self.fault == "the observation is shorter":
            observation = observation[:3]
        if self.fault == "the observation is text":
            observation = np.array(["a", "b", "c", "d"])
        if self.fault == "the observation is a dictionary":
            observation = {"seen": observation}
        if self.fault == "terminated is text":
            terminated = "no"
        if self.fault == "truncated is a dictionary":
            truncated = {}
        if self.fault == "it dies":
            os._exit(3)
        if self.fault == "it hangs":
            time.sleep(3600)
        return observation, reward, terminated, truncated, info

    def unpack(self, action):
        observation, reward, terminated, truncated, info = super().step(0)[:4]

    def close(self):
        pass


class Outside(Counting):
    """Observes values outside the bounds that its space declares."""

    def __init__(self):
        super().__init__(actions=10)
        self.observation_space.low, self.observation_space.high = np.zeros(4), np.ones(4)


class Endless(Counting):
    def __init__(self):
        super().__init__(actions=10, limit=60_000)

    def reset(self, *, seed):
        return super().reset(seed=1_000_000)


class Drawing(Counting):
    """Draws the number of steps as the brightness of a picture, unless it has a fault.

    Observes the number of pictures in place of the last action.
    """

    render_mode = "rgb_array"

    def __init__(self, fault=""):
        super().__init__(actions=10)
        self.fault, self.drawn = fault, 0

    def observation(self):
        return np.array([self.seed, self.steps, self.drawn, os.getpid()], np.float32)

    def render(self):
        self.drawn += 1
        if self.fault == "it raises":
            raise RuntimeError("no display")
        if self.fault == "it hangs":
            time.sleep(3600)
        if self.fault == "it dies":
            os._exit(4)
        if self.fault == "it draws text":
            return "a pole"
        if self.fault == "it draws noise":
            return np.random.default_rng(1).integers(0, 256, (640, 640, 3), np.uint8)
        return np.full((300, 400, 3), self.steps, np.uint8)
