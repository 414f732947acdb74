"""Plays an environment without the bridge and prints every step, for comparison with the bridge.

    python play_directly.py ENVIRONMENT EPISODES ACTIONS

A line for each reset and step: reward, terminated, truncated, then the observation; numbers are the bits of float32.
"""

import sys

import gymnasium
import numpy as np


def bits(*values):
    return np.asarray(values, np.float32).view(np.uint32).tolist()


def main():
    name, episodes, actions = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for episode in range(episodes):
        environment = gymnasium.make(name)
        observation, _ = environment.reset(seed=1000 + episode)
        print(0, 0, 0, *bits(*observation))
        step = 0
        while True:
            action = (episode + step * step // 3) % actions
            observation, reward, terminated, truncated, _ = environment.step(action)
            print(*bits(reward), int(terminated), int(truncated), *bits(*observation))
            step += 1
            if terminated or truncated:
                break


main()
