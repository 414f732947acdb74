"""Environments of PettingZoo: their tests, and rewards."""

import numpy as np
import pytest
from pettingzoo.test import api_test, seed_test

import zerofleet as zf
import zerofleet.pettingzoo

GAMES = ["connect_four", "tic_tac_toe", "cartpole-v1", "2048"]


@pytest.mark.parametrize("name", GAMES)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_tests_of_pettingzoo_pass(name):
    api_test(zerofleet.pettingzoo.env(name), num_cycles=1000)
    seed_test(lambda: zerofleet.pettingzoo.env(name), num_cycles=500)


def test_a_win_is_a_loss_of_the_other_player():
    env = zerofleet.pettingzoo.env("tic_tac_toe", render_mode="ansi")
    env.reset(seed=0)
    assert env.agents == ["player_0", "player_1"]
    for ply, action in enumerate((0, 3, 1, 4, 2)):
        assert env.agent_selection == f"player_{ply % 2}"
        observation = env.observe(env.agent_selection)
        assert observation["action_mask"].sum() == 9 - ply
        assert not env.observe(f"player_{1 - ply % 2}")["action_mask"].any()
        env.step(action)
    assert env.rewards == {"player_0": 1.0, "player_1": -1.0}
    assert env.terminations == {"player_0": True, "player_1": True}
    assert env.render().strip()


def test_an_illegal_action_loses_or_raises():
    env = zerofleet.pettingzoo.env("tic_tac_toe")
    env.reset(seed=0)
    env.step(4)
    env.step(4)
    assert env.rewards == {"player_0": 0, "player_1": -1.0}
    raw = zerofleet.pettingzoo.raw_env("tic_tac_toe")
    raw.reset(seed=0)
    raw.step(4)
    with pytest.raises(ValueError):
        raw.step(4)


def test_an_environment_for_one_player_has_its_rewards():
    env, single = zerofleet.pettingzoo.env("cartpole-v1"), zf.make("cartpole-v1")
    env.reset(seed=5)
    observation, _ = single.reset(seed=5)
    assert env.agents == ["player_0"]
    for action in [0, 1, 1, 0, 1]:
        seen = env.observe("player_0")
        assert np.array_equal(seen["observation"], observation)
        if not seen["action_mask"][action]:
            continue
        env.step(action)
        observation, reward, *_ = single.step(action)
        assert env.rewards["player_0"] == reward
