"""Environments of Gymnasium: their checker, rewards, seats, and the equality of one and many."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import zerofleet as zf
from zerofleet.games import Game, Position

GAMES = ["connect_four", "tic_tac_toe", "cartpole-v1", "2048"]


def first_legal(position: Position) -> int:
    return position.legal_actions()[0]


@pytest.mark.parametrize("name", GAMES)
@pytest.mark.filterwarnings("error", "ignore:.*infinity:UserWarning")
def test_the_checker_of_gymnasium_passes(name):
    zf.make(name)
    check_env(gymnasium.make(f"zerofleet/{name}-v0", render_mode="ansi").unwrapped)


@pytest.mark.parametrize("name", GAMES)
def test_a_seed_determines_an_episode(name):
    def episode():
        env = zf.make(name)
        observation, info = env.reset(seed=7)
        env.action_space.seed(7)
        steps = [(observation, info)]
        ended = False
        while not ended:
            action = env.action_space.sample(info["action_mask"])
            observation, reward, terminated, truncated, info = env.step(action)
            steps.append((observation, reward, terminated, truncated, info))
            ended = terminated or truncated
        return steps

    assert data_equivalence(episode(), episode(), exact=True)


def test_the_agent_loses_to_three_in_a_row():
    env = zf.make("tic_tac_toe", opponent=first_legal, seat=1, render_mode="ansi")
    observation, info = env.reset(seed=0)
    assert observation.shape == Game("tic_tac_toe").observation_shape and observation.dtype == np.float32
    assert info["action_mask"].dtype == np.int8
    assert info["action_mask"].tolist() == [0, 1, 1, 1, 1, 1, 1, 1, 1]
    assert env.step(3)[1:4] == (0.0, False, False)
    _, reward, terminated, truncated, info = env.step(4)
    assert (reward, terminated, truncated) == (-1.0, True, False)
    assert not info["action_mask"].any()
    assert env.render().strip()
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(5)


def test_the_agent_wins_with_three_in_a_row():
    env = zf.make("tic_tac_toe", opponent=first_legal, seat=0)
    env.reset(seed=0)
    rewards = [env.step(action)[1] for action in (4, 2, 6)]
    assert rewards == [0.0, 0.0, 1.0]


def test_an_illegal_action_loses_or_raises():
    env = zf.make("tic_tac_toe", opponent=first_legal, seat=1)
    env.reset(seed=0)
    observation, *ended, info = env.step(0)
    assert ended == [-1.0, True, False]
    assert observation.any() and not info["action_mask"].any()
    strict = zf.make("tic_tac_toe", opponent=first_legal, seat=1, illegal="error")
    strict.reset(seed=0)
    with pytest.raises(ValueError):
        strict.step(0)
    with pytest.raises(ValueError, match="action 9"):
        env.reset()
        env.step(9)


def test_settings_that_do_not_exist_are_refused():
    for settings in ({"seat": 2}, {"illegal": "ignore"}, {"render_mode": "human"}):
        with pytest.raises(ValueError, match=next(iter(settings))):
            zf.make("tic_tac_toe", **settings)


def test_seats_are_drawn_evenly():
    env = zf.make_vec("tic_tac_toe", 1000, opponent=first_legal, seed=1)
    _, infos = env.reset()
    seconds = int((infos["action_mask"].sum(axis=1) == 8).sum())
    # Five standard deviations of 1,000 fair draws.
    assert abs(seconds - 500) < 5 * np.sqrt(250)


def test_random_opponents_move_uniformly():
    env = zf.make_vec("tic_tac_toe", 9000, seat=1, seed=3)
    _, infos = env.reset()
    taken = 9000 - infos["action_mask"].sum(axis=0, dtype=np.int64)
    assert taken.sum() == 9000
    # Five standard deviations of 9,000 draws with probability 1/9.
    assert (np.abs(taken - 1000) < 5 * np.sqrt(9000 * 8 / 81)).all(), taken


@pytest.mark.parametrize("seat", ["random", 0, 1])
@pytest.mark.parametrize("name", GAMES)
def test_a_vector_environment_equals_single_environments(name, seat):
    count = 5
    single = SyncVectorEnv([lambda: zf.make(name, opponent=first_legal, seat=seat) for _ in range(count)])
    vector = zf.make_vec(name, count, opponent=first_legal, seat=seat)
    assert vector.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
    assert vector.observation_space == single.observation_space
    assert vector.action_space == single.action_space
    expected, infos = single.reset(seed=11)
    assert data_equivalence(vector.reset(seed=11), (expected, infos), exact=True)
    random = np.random.default_rng(5)
    ends = 0
    for _ in range(200):
        # Legal actions, and in one game of ten any action.
        weights = random.random(infos["action_mask"].shape) * np.maximum(infos["action_mask"], 1e-9)
        actions = np.where(random.random(count) < 0.1, vector.action_space.sample(), weights.argmax(axis=1))
        expected = single.step(actions)
        actual = vector.step(actions)
        assert data_equivalence(tuple(actual[:4]), tuple(expected[:4]), exact=True)
        assert data_equivalence(actual[4], expected[4], exact=True)
        infos = expected[4]
        ends += int((expected[2] | expected[3]).sum())
    assert ends > 0 or name == "2048"


def test_a_vector_environment_refuses_actions_of_another_shape():
    env = zf.make_vec("tic_tac_toe", 3, seed=0, illegal="error", opponent=first_legal, seat=1)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.zeros(3, np.int64))
    env.reset()
    with pytest.raises(ValueError, match="3 actions"):
        env.step(np.zeros(2, np.int64))
    with pytest.raises(ValueError, match="3 actions"):
        env.step(np.full(3, 9))
    with pytest.raises(ValueError, match=r"\[0, 2\]"):
        env.step(np.array([0, 1, 0]))


def test_games_are_registered_with_gymnasium():
    env = gymnasium.make("zerofleet/tic_tac_toe-v0", opponent=first_legal, seat=1)
    _, info = env.reset(seed=0)
    assert info["action_mask"].sum() == 8
    assert isinstance(gymnasium.make_vec("zerofleet/connect_four-v0", num_envs=2), zf.envs.VectorGameEnv)
