"""The classes for games: positions, pickling, observations, and games that advance together."""

import copy
import itertools
import pickle
import threading

import numpy as np
import numpy.typing as npt
import pytest

import zerofleet
from zerofleet import Game, Position, VectorGames, observations

ROWS, COLUMNS = 6, 7
# Games for one and two players, by the outcome and by rewards, with and without chance.
GAMES = ["connect_four", "go-5", "cartpole-v1", "2048"]


def random_episode(game: Game, seed: int, plies: int) -> list[Position]:
    """Returns the positions of an episode of random moves, cut after so many plies."""
    rng = np.random.default_rng(seed)
    positions = [game.start(seed)]
    while len(positions) <= plies and not positions[-1].is_over:
        positions.append(positions[-1].play(int(rng.choice(positions[-1].legal_actions()))))
    return positions


def connect_four_planes(columns: list[int]) -> npt.NDArray[np.float32]:
    """Returns the observation `[3, 6, 7]` of Connect Four by the rules of gravity alone."""
    board = np.full((ROWS, COLUMNS), -1)
    for ply, column in enumerate(columns):
        row = max(row for row in range(ROWS) if board[row, column] == -1)
        board[row, column] = ply % 2
    to_move = len(columns) % 2
    first = np.full((ROWS, COLUMNS), to_move == 0)
    return np.stack([board == to_move, board == 1 - to_move, first]).astype(np.float32)


def test_every_listed_game_starts_and_describes_itself() -> None:
    names = zerofleet.game_names()
    assert {"tic_tac_toe", "connect_four", "hex-11", "go-19", "chess", "cartpole-v1", "2048"} <= set(names)
    for name in names:
        game = Game(name)
        start = game.start()
        assert (game.name, start.game, start.actions, start.seed) == (name, game, [], 0)
        assert start.observation().shape == game.observation_shape
        assert start.observation().dtype == np.float32
        assert start.legal_mask().shape == (game.actions,)
        assert np.flatnonzero(start.legal_mask()).tolist() == start.legal_actions() != []
        assert start.returns == (0.0,) * game.players
        assert (start.outcome, start.is_over, start.reward, start.to_move) == (None, False, 0.0, 0)
        assert game.scoring == ("outcome" if game.players == 2 else "rewards")
        assert game.max_plies >= 5
        turns = [position.to_move for position in random_episode(game, 1, 60) if not position.is_over]
        assert turns == [ply % game.players for ply in range(len(turns))], "batches and environments rely on turns"
        assert "[" in game.preset
        assert str(start) == start.render() != ""


def test_numbers_and_notation_name_the_same_moves() -> None:
    game = Game("connect_four")
    position = game.position([3, "4", np.int64(0)])  # type: ignore[list-item]
    assert position == game.position(["4", "4", "1"]) == game.start().play(3).play("4").play(0)
    assert position.actions == [3, 3, 0]
    assert position.action_name(6) == "7"
    assert position.parse_action("7") == 6
    assert repr(position) == "Game('connect_four').position([3, 3, 0])"
    assert eval(repr(position), {"Game": Game}) == position
    chess = Game("chess").position(["e2e4", "e5", "Nf3"])
    assert [chess.game.start().play(chess.actions[0]).action_name(chess.actions[1]), chess.to_move] == ["e7e5", 1]
    hexagons = Game("hex-5").position(["c3", "swap"])
    assert hexagons.actions[1] == hexagons.game.actions - 1


def test_a_win_has_an_outcome_returns_and_no_legal_action() -> None:
    won = Game("connect_four").position([0, 1, 0, 1, 0, 1, 0])
    assert (won.is_over, won.outcome, won.returns, won.reward) == (True, "first_wins", (1.0, -1.0), 1.0)
    assert won.legal_actions() == []
    assert not won.legal_mask().any()
    lost = Game("connect_four").position([0, 1, 0, 1, 0, 1, 2, 1])
    assert (lost.outcome, lost.returns, lost.reward) == ("second_wins", (-1.0, 1.0), 1.0)
    drawn = Game("tic_tac_toe").position([0, 1, 2, 4, 3, 5, 7, 6, 8])
    assert (drawn.outcome, drawn.returns, drawn.reward) == ("draw", (0.0, 0.0), 0.0)


def test_a_position_never_changes() -> None:
    start = Game("connect_four").start()
    start.observation()[:] = 7
    start.legal_mask()[:] = False
    start.actions.append(3)
    start.play(3)
    assert start == Game("connect_four").start()
    assert start.actions == []
    assert start.legal_mask().all()
    assert start.observation().max() == 1
    with pytest.raises(AttributeError):
        start.seed = 1  # type: ignore[misc]


def test_returns_are_the_sum_of_rewards() -> None:
    episode = random_episode(Game("2048"), 5, 10_000)
    (total,) = episode[-1].returns
    assert total == pytest.approx(sum(position.reward for position in episode))
    assert total > 0
    assert (episode[-1].is_over, episode[-1].outcome) == (True, "finished")
    pole = random_episode(Game("cartpole-v1"), 5, 500)[-1]
    assert pole.returns == (float(len(pole.actions)),)


def test_the_observation_of_connect_four_has_the_planes_of_the_rules() -> None:
    for seed in range(20):
        for position in random_episode(Game("connect_four"), seed, 42):
            np.testing.assert_array_equal(position.observation(), connect_four_planes(position.actions))


@pytest.mark.parametrize("name", GAMES)
def test_equal_seeds_and_actions_are_equal_positions(name: str) -> None:
    game = Game(name)
    position = random_episode(game, 3, 8)[-1]
    again = game.position(position.actions, seed=3)
    assert position == again
    assert hash(position) == hash(again)
    assert len({position, again, game.start(3)}) == 2
    assert position != game.start(3)
    assert position != "position"
    if name in ("cartpole-v1", "2048"):
        assert game.start(3) != game.start(4)


def test_transpositions_are_equal_and_boards_of_other_sizes_are_not() -> None:
    game = Game("connect_four")
    assert game.position([0, 1, 2]) == game.position([2, 1, 0])
    assert game.start() != Game("connect_four-6x5").start()
    assert (game == Game("connect_four"), game == Game("hex-5"), game == "connect_four") == (True, False, False)
    assert len({game, Game("connect_four"), Game(game), Game("hex-5")}) == 2
    assert repr(game) == "Game('connect_four')"


@pytest.mark.parametrize("name", GAMES)
def test_games_and_positions_are_pickled_and_copied(name: str) -> None:
    position = random_episode(Game(name), 7, 12)[-1]
    for restored in (pickle.loads(pickle.dumps(position)), copy.copy(position), copy.deepcopy(position)):
        assert type(restored) is Position
        assert type(restored.game) is Game
        assert (restored, restored.actions, restored.seed) == (position, position.actions, position.seed)
        assert restored.returns == position.returns
        np.testing.assert_array_equal(restored.observation(), position.observation())
    assert pickle.loads(pickle.dumps(position.game)) == position.game


@pytest.mark.parametrize("name", GAMES)
def test_observations_of_replayed_episodes_are_those_of_positions(name: str) -> None:
    game = Game(name)
    positions = [position for seed in range(30) for position in random_episode(game, seed, 9)]
    batch = observations(game, ((position.seed, position.actions) for position in positions))
    np.testing.assert_array_equal(batch, np.stack([position.observation() for position in positions]))
    assert observations(game, []).shape == (0, *game.observation_shape)


def test_threads_replay_episodes_at_the_same_time() -> None:
    game = Game("go-5")
    episodes = [(0, random_episode(game, seed, 40)[-1].actions) for seed in range(50)]
    expected = observations(game, episodes)
    results: list[npt.NDArray[np.float32]] = []
    threads = [threading.Thread(target=lambda: results.append(observations(game, episodes))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    for result in results:
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("name", GAMES)
def test_vector_games_equal_single_games(name: str) -> None:
    rng = np.random.default_rng(0)
    vector = VectorGames(name, 5, seed=11)
    assert (len(vector), vector.game, vector.seeds) == (5, Game(name), [11, 12, 13, 14, 15])
    single = [vector.game.start(seed) for seed in vector.seeds]
    ended = 0
    for _ in range(300):
        np.testing.assert_array_equal(vector.observations(), np.stack([game.observation() for game in single]))
        np.testing.assert_array_equal(vector.legal_masks(), np.stack([game.legal_mask() for game in single]))
        assert vector.to_move().tolist() == [game.to_move for game in single]
        actions = [int(rng.choice(game.legal_actions())) for game in single]
        single = [game.play(action) for game, action in zip(single, actions, strict=True)]
        rewards, terminated, truncated = vector.step(actions)
        assert rewards.dtype == np.float32
        assert rewards.tolist() == [game.reward for game in single]
        assert truncated.tolist() == [game.outcome == "truncated" for game in single]
        assert (terminated | truncated).tolist() == [game.is_over for game in single]
        assert [vector.outcome(index) for index in range(5)] == [game.outcome for game in single]
        over = np.flatnonzero(terminated | truncated)
        vector.reset(indices=over)
        for index in over:
            single[index] = vector.game.start(vector.seeds[index])
        ended += len(over)
    assert ended > 0


def test_a_game_that_is_over_ignores_actions_until_reset() -> None:
    vector = VectorGames("connect_four", 2)
    for first, second in [(0, 0), (1, 0), (0, 0), (1, 0), (0, 0), (1, 0)]:
        vector.step([first, second])
    rewards, terminated, truncated = vector.step([0, 1])
    assert (rewards.tolist(), terminated.tolist(), truncated.tolist()) == ([1.0, 0.0], [True, False], [False, False])
    before = vector.observations()
    rewards, terminated, truncated = vector.step([-5, 1])
    assert (rewards.tolist(), terminated.tolist(), truncated.tolist()) == ([0.0, 0.0], [False, False], [False, False])
    np.testing.assert_array_equal(vector.observations()[0], before[0])
    assert [vector.outcome(0), vector.outcome(1)] == ["first_wins", None]
    vector.reset(indices=[0])
    assert vector.legal_masks()[0].all()
    assert vector.outcome(0) is None


def test_seeds_of_later_episodes_follow_from_the_first_seed() -> None:
    vectors = [VectorGames("2048", 3, seed=4) for _ in range(2)]
    for vector in vectors:
        vector.reset()
        vector.reset(indices=(2, 0))
    assert vectors[0].seeds == vectors[1].seeds
    assert len({*vectors[0].seeds, 4, 5, 6}) == 6
    vectors[0].reset(seed=2**64 - 1)
    assert vectors[0].seeds == [2**64 - 1, 0, 1]


def test_the_time_limit_of_an_episode_truncates_it() -> None:
    vector = VectorGames("pendulum-5", 1)
    flags = [tuple(flag[0] for flag in vector.step([0])[1:]) for _ in range(vector.game.max_plies)]
    assert flags[-1] == (False, True)
    assert not np.any(flags[:-1])


def test_unknown_games_are_an_error_with_a_suggestion() -> None:
    with pytest.raises(zerofleet.Error, match="did you mean `connect_four`"):
        Game("connect-four")
    with pytest.raises(zerofleet.Error, match="sizes are hex-3 to hex-19"):
        VectorGames("hex-99", 1)
    with pytest.raises(zerofleet.Error, match="outside this program"):
        Game("gym:CartPole-v1")
    with pytest.raises(TypeError):
        Game(4)  # type: ignore[arg-type]


def test_one_text_has_moves_separated_by_whitespace() -> None:
    assert Game("connect_four").position(" 4 4\n3").actions == [3, 3, 2]
    assert Game("chess").position("e2e4 e7e5") == Game("chess").position(["e2e4", "e7e5"])
    assert Game("chess").position("") == Game("chess").start()
    with pytest.raises(ValueError, match="`x` is not a move"):
        Game("connect_four").position("4 x")


def test_wrong_moves_are_value_errors() -> None:
    start = Game("connect_four").start()
    for move, text in [(7, "7 is not an action of connect_four: actions are 0 to 6"), (-1, "-1 is not an action")]:
        with pytest.raises(ValueError, match=text):
            start.play(move)
        with pytest.raises(ValueError, match=text):
            start.action_name(move)
    with pytest.raises(ValueError, match="`e4` is not a move: expected a column from 1 to 7"):
        start.play("e4")
    with pytest.raises(ValueError, match="`8` is not a move"):
        start.parse_action("8")
    with pytest.raises(ValueError, match="action 0 is not legal at ply 6 of connect_four"):
        Game("connect_four").position([0] * 7)
    with pytest.raises(ValueError, match="action 0 is not legal at ply 7"):
        Game("connect_four").position([0, 1, 0, 1, 0, 1, 0, 0])
    with pytest.raises(ValueError, match="is not legal at ply"):
        Game("connect_four").position(itertools.cycle(range(7)))
    with pytest.raises(TypeError):
        start.play(0.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        start.play(None)  # type: ignore[arg-type]
    with pytest.raises(OverflowError):
        start.play(2**70)
    with pytest.raises(OverflowError):
        Game("2048").start(-1)


def test_wrong_episodes_are_errors_with_the_index() -> None:
    game = Game("connect_four")
    with pytest.raises(ValueError, match="episode 1: action 0 is not legal at ply 6"):
        observations(game, [(0, []), (0, [0] * 7)])
    with pytest.raises(ValueError, match="episode 0: action 7 is not legal at ply 0"):
        observations(game, [(0, [7])])
    with pytest.raises(ValueError, match="episode 0 has 43 actions, more than 42"):
        observations(game, [(0, [0] * 43)])
    with pytest.raises(ValueError, match="65537 episodes are more than 65536"):
        observations(game, [(0, [])] * 65_537)
    with pytest.raises(OverflowError):
        observations(game, [(0, [-1])])


def test_rejected_actions_change_no_game() -> None:
    vector = VectorGames("connect_four", 3)
    for _ in range(6):
        vector.step([0, 1, 2])
    before = vector.observations()
    for actions, text in [
        ([1, 1, 1], "game 1: action 1 is not legal in this position of connect_four"),
        ([1, 0, 7], "game 2: action 7 is not legal"),
        ([-1, 0, 0], "game 0: action -1 is not legal"),
        ([1, 0], "3 games take 3 actions, not 2"),
        ([1, 0, 0, 0], "3 games take 3 actions, not 4"),
    ]:
        with pytest.raises(ValueError, match=text):
            vector.step(actions)
    with pytest.raises(ValueError, match="3 games take 3 actions"):
        vector._step(b"12345")
    with pytest.raises(TypeError, match="actions are integers, not float64"):
        vector.step([0.0, 0.0, 0.0])
    np.testing.assert_array_equal(vector.observations(), before)


def test_wrong_counts_and_indices_are_value_errors() -> None:
    for count in (0, -1, 65_537):
        with pytest.raises(ValueError, match=f"the count is 1 to 65536, not {count}"):
            VectorGames("tic_tac_toe", count)
    vector = VectorGames("tic_tac_toe", 2, seed=9)
    for index in (2, -1):
        with pytest.raises(ValueError, match=f"there is no game {index}: games are 0 to 1"):
            vector.outcome(index)
        with pytest.raises(ValueError, match=f"there is no game {index}"):
            vector.reset(indices=[0, index])
    with pytest.raises(ValueError, match="more indices than the 2 games"):
        vector.reset(indices=itertools.repeat(0))
    assert vector.seeds == [9, 10]
