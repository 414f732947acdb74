"""Plays recorded episodes in the published implementation of an environment and compares every step.

    python environments.py NAME EPISODES.json

EPISODES is a list of episodes: `start` and `steps`, each with the state, the observation, the reward and the end
(`terminated`, `truncated` or null), and each step with its action. `whole` episodes are played from their start; in the
others, each step is played from the recorded state before it. Prints the number of steps and the largest difference of
a state, and exits with an error at the first disagreement.
"""

import importlib.util
import json
import sys
import types
from pathlib import Path

import gymnasium
import minatar
import numpy as np
from minigrid.core.grid import Grid
from minigrid.core.world_object import Door, Goal, Key
from minigrid.envs.doorkey import DoorKeyEnv

# Sines of two libraries differ in the last bit.
TOLERANCE = 1e-9
# Observations and rewards are single precision.
TOLERANCE_F32 = 1e-6


class CartPole:
    """Gymnasium's CartPole. The state is position, velocity, angle and angular velocity."""

    def __init__(self, name):
        self.env = gymnasium.make({"cartpole-v0": "CartPole-v0", "cartpole-v1": "CartPole-v1"}[name])

    def start(self, state):
        self.env.reset(seed=0)
        self.put(state)

    def put(self, state):
        self.env.unwrapped.state = np.array(state, dtype=np.float64)

    def state(self):
        return self.env.unwrapped.state

    def observation(self):
        return np.array(self.env.unwrapped.state, dtype=np.float32)

    def step(self, action):
        _, reward, terminated, truncated, _ = self.env.step(action)
        return reward, "terminated" if terminated else "truncated" if truncated else None


class Catch:
    """bsuite's Catch. The state is the row and the column of the ball and the column of the paddle."""

    def __init__(self, _):
        # The package itself imports libraries for plots; this environment needs none of them.
        package = types.ModuleType("bsuite")
        package.__path__ = importlib.util.find_spec("bsuite").submodule_search_locations
        sys.modules["bsuite"] = package
        from bsuite.environments.catch import Catch as Published

        self.env = Published(rows=10, columns=5)

    def start(self, state):
        self.env.reset()
        self.put(state)

    def put(self, state):
        self.env._ball_y, self.env._ball_x, self.env._paddle_x = (int(number) for number in state)

    def state(self):
        return [self.env._ball_y, self.env._ball_x, self.env._paddle_x]

    def observation(self):
        return self.env._observation()

    def step(self, action):
        step = self.env.step(action)
        return step.reward, "terminated" if step.last() else None


class Pendulum:
    """Gymnasium's Pendulum. The state is the angle and the angular velocity; torques are evenly spaced."""

    def __init__(self, name):
        self.env = gymnasium.make("Pendulum-v1", disable_env_checker=True)
        self.torques = np.linspace(-2.0, 2.0, int(name.rsplit("-")[-1]))

    def start(self, state):
        self.env.reset(seed=0)
        self.put(state)

    def put(self, state):
        self.env.unwrapped.state = np.array(state, dtype=np.float64)

    def state(self):
        return self.env.unwrapped.state

    def observation(self):
        return self.env.unwrapped._get_obs()

    def step(self, action):
        _, reward, terminated, truncated, _ = self.env.step(self.torques[[action]])
        return reward, "terminated" if terminated else "truncated" if truncated else None


class Breakout:
    """MinAtar's Breakout. The state is ball, direction, trail, paddle, strike and bricks, the action the one taken."""

    # MinAtar has no limit of steps.
    STEPS_MAX = 2500

    def __init__(self, _):
        # The recorded actions are those after sticky actions.
        self.outer = minatar.Environment("breakout", sticky_action_prob=0.0)
        self.env = self.outer.env
        self.actions = self.outer.minimal_action_set()

    def start(self, state):
        self.outer.reset()
        self.steps = 0
        self.put(state)

    def put(self, state):
        env, numbers = self.env, [int(number) for number in state]
        env.ball_y, env.ball_x, env.ball_dir, env.last_y, env.last_x, env.pos = numbers[:6]
        env.strike = bool(numbers[6])
        env.brick_map[1:4, :] = np.reshape(numbers[7:], (3, 10))

    def state(self):
        env = self.env
        head = [env.ball_y, env.ball_x, env.ball_dir, env.last_y, env.last_x, env.pos, int(env.strike)]
        return head + env.brick_map[1:4, :].ravel().tolist()

    def observation(self):
        return np.transpose(self.outer.state(), (2, 0, 1))

    def step(self, action):
        reward, terminated = self.outer.act(self.actions[action])
        self.steps += 1
        return reward, "terminated" if terminated else "truncated" if self.steps == self.STEPS_MAX else None


class KeysAndDoors:
    """Minigrid's DoorKey. The state is agent, direction, wall, door and key; see `Position::numbers`."""

    def __init__(self, name):
        size = int(name.rsplit("-")[-1])
        self.env = DoorKeyEnv(size=size)

    def start(self, state):
        self.env.reset(seed=0)
        self.put(state)

    def put(self, state):
        env = self.env
        column, row, facing, wall, door_row, door, key_column, key_row = (int(number) for number in state)
        env.grid = Grid(env.width, env.height)
        env.grid.wall_rect(0, 0, env.width, env.height)
        env.put_obj(Goal(), env.width - 2, env.height - 2)
        env.grid.vert_wall(wall, 0)
        self.wall, self.door_row = wall, door_row
        self.door = Door("yellow", is_open=door == 0, is_locked=door == 2)
        env.put_obj(self.door, wall, door_row)
        self.key = Key("yellow")
        env.carrying = self.key if key_column < 0 else None
        if env.carrying is None:
            env.put_obj(self.key, key_column, key_row)
        env.agent_pos, env.agent_dir = (column, row), facing

    def state(self):
        env = self.env
        door = 0 if self.door.is_open else 2 if self.door.is_locked else 1
        keys = [(x, y) for x in range(env.width) for y in range(env.height) if env.grid.get(x, y) is self.key]
        key = (-1, -1) if env.carrying is self.key else keys[0]
        return [*env.agent_pos, env.agent_dir, self.wall, self.door_row, door, *key]

    def observation(self):
        # Minigrid's order is column, row, channel.
        image = np.transpose(self.env.gen_obs()["image"], (2, 1, 0))
        return image / np.array([10.0, 5.0, 2.0]).reshape(3, 1, 1)

    def step(self, action):
        _, reward, terminated, truncated, _ = self.env.step(action)
        return reward, "terminated" if terminated else "truncated" if truncated else None


ENVIRONMENTS = {
    "breakout": Breakout,
    "breakout-deterministic": Breakout,
    "cartpole-v0": CartPole,
    "cartpole-v1": CartPole,
    "catch": Catch,
    "keys_and_doors-5": KeysAndDoors,
    "keys_and_doors-6": KeysAndDoors,
    "keys_and_doors-8": KeysAndDoors,
    "pendulum-5": Pendulum,
    "pendulum-9": Pendulum,
}


class Disagreement(Exception):
    """The two implementations differ."""


def difference(ours, published):
    """Returns the largest difference of two lists of numbers, infinite where their lengths differ."""
    ours, published = np.asarray(ours, dtype=np.float64), np.asarray(published, dtype=np.float64).ravel()
    if ours.shape != published.shape or not np.isfinite(published).all():
        return np.inf
    return float(np.max(np.abs(ours - published), initial=0.0))


def compare(recorded, environment, where):
    """Compares a recorded position with that of the environment; returns the difference of the states."""
    of_state = difference(recorded["state"], environment.state())
    if of_state > TOLERANCE:
        raise Disagreement(f"{where}: state {recorded['state']}, published {list(environment.state())}")
    observation = environment.observation()
    if difference(recorded["observation"], observation) > TOLERANCE_F32:
        raise Disagreement(f"{where}: observation {recorded['observation']}, published {observation.ravel().tolist()}")
    return of_state


def play(episode, environment):
    """Plays an episode; returns the largest difference of a state."""
    before = episode["start"]
    environment.start(before["state"])
    largest = compare(before, environment, f"seed {episode['seed']}, start")
    for index, step in enumerate(episode["steps"]):
        where = f"seed {episode['seed']}, step {index}"
        if not episode["whole"]:
            environment.put(before["state"])
        reward, end = environment.step(step["action"])
        if abs(reward - step["reward"]) > TOLERANCE_F32 * max(1.0, abs(reward)):
            raise Disagreement(f"{where}: reward {step['reward']}, published {reward}")
        if end != step["end"]:
            raise Disagreement(f"{where}: end {step['end']}, published {end}")
        largest = max(largest, compare(step, environment, where))
        before = step
    return largest


def main():
    name, path = sys.argv[1:]
    episodes = json.loads(Path(path).read_text())
    environment = ENVIRONMENTS[name](name)
    try:
        largest = max(play(episode, environment) for episode in episodes)
    except Disagreement as disagreement:
        sys.exit(f"{name}: {disagreement}")
    steps = sum(len(episode["steps"]) for episode in episodes)
    print(f"{name}: {len(episodes)} episodes of {steps} steps agree, with a difference of at most {largest:.1e}")


if __name__ == "__main__":
    main()
