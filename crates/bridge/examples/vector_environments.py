"""Measures the vector environments of Gymnasium: environment steps per second.

    python vector_environments.py ENVIRONMENT COUNT SECONDS

Prints a line `sync NUMBER` and a line `async NUMBER`.
"""

import sys
import time

import gymnasium
import numpy as np


def steps_per_second(environments, count, seconds):
    """Steps with random actions after one warm-up step; episodes restart by themselves."""
    rng = np.random.default_rng(1)
    actions = environments.single_action_space.n
    environments.reset(seed=1)
    environments.step(rng.integers(actions, size=count))
    steps, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        environments.step(rng.integers(actions, size=count))
        steps += count
    environments.close()
    return steps / elapsed


def main():
    name, count, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    for mode in ["sync", "async"]:
        environments = gymnasium.make_vec(name, num_envs=count, vectorization_mode=mode)
        print(mode, steps_per_second(environments, count, seconds), flush=True)


if __name__ == "__main__":
    main()
