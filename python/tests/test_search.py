"""Networks with random weights evaluate and search positions."""

from __future__ import annotations

import json
import math
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import zerofleet as zf
from zerofleet import _zerofleet
from zerofleet.networks import Network
from zerofleet.player import Player

Tensors = dict[str, npt.NDArray[np.float32]]
CHANNELS, HEAD, HIDDEN = 16, 32, 64
SUPPORT = 5


def safetensors(tensors: Tensors) -> bytes:
    header: dict[str, Any] = {}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.nbytes
        header[name] = {"dtype": "F32", "shape": tensor.shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(tensor.tobytes() for tensor in tensors.values())


class RandomTensors:
    """Random tensors of layers, named as in crates/network."""

    def __init__(self) -> None:
        self.tensors: Tensors = {}
        self._generator = np.random.default_rng(7)

    def _weight(self, name: str, *shape: int) -> None:
        scale = math.sqrt(2 / math.prod(shape[1:]))
        # Similar priors: a search visits every action.
        scale *= 0.3 if name == "policy.output.weight" else 1.0
        self.tensors[name] = (scale * self._generator.standard_normal(shape)).astype("<f4")

    def _constants(self, value: float, size: int, *names: str) -> None:
        self.tensors.update({name: np.full(size, value, "<f4") for name in names})

    def convolution(self, name: str, side: int, inputs: int, outputs: int) -> None:
        self._weight(f"{name}.convolution.weight", outputs, inputs, side, side)
        self._constants(1.0, outputs, f"{name}.norm.weight", f"{name}.norm.variance")
        self._constants(0.0, outputs, f"{name}.norm.bias", f"{name}.norm.mean")

    def linear(self, name: str, inputs: int, outputs: int) -> None:
        self._weight(f"{name}.weight", outputs, inputs)
        self._constants(0.0, outputs, f"{name}.bias")

    def dense(self, name: str, inputs: int, outputs: int) -> None:
        self._weight(f"{name}.weight", outputs, inputs)
        self._constants(1.0, outputs, f"{name}.norm.weight")
        self._constants(0.0, outputs, f"{name}.norm.bias")


def alphazero(game: str) -> tuple[dict[str, Any], bytes]:
    """Returns the architecture and the weights of a tower with one block."""
    (planes, height, width), actions = zf.Game(game).observation_shape, zf.Game(game).actions
    layers, features = RandomTensors(), height * width * HEAD
    layers.convolution("stem", 3, planes, CHANNELS)
    layers.convolution("block.0.first", 3, CHANNELS, CHANNELS)
    layers.convolution("block.0.second", 3, CHANNELS, CHANNELS)
    layers.convolution("policy", 1, CHANNELS, HEAD)
    layers.linear("policy.output", features, actions)
    layers.convolution("value", 1, CHANNELS, HEAD)
    layers.linear("value.hidden", features, HIDDEN)
    layers.linear("value.output", HIDDEN, 3)
    return architecture(game, "alphazero"), safetensors(layers.tensors)


def muzero(game: str) -> tuple[dict[str, Any], bytes]:
    """Returns the architecture and the weights of a dense network without blocks, for vectors."""
    (planes, _, _), actions = zf.Game(game).observation_shape, zf.Game(game).actions
    layers = RandomTensors()
    layers.dense("representation.input", planes, CHANNELS)
    layers.dense("dynamics.input", CHANNELS + actions, CHANNELS)
    for head, outputs in [("policy", actions), ("value", 2 * SUPPORT + 1), ("reward", 2 * SUPPORT + 1)]:
        layers.dense(f"{head}.hidden", CHANNELS, HIDDEN)
        layers.linear(f"{head}.output", HIDDEN, outputs)
    return {**architecture(game, {"muzero": {"support": SUPPORT}}), "blocks": 0}, safetensors(layers.tensors)


def architecture(game: str, model: str | dict[str, Any]) -> dict[str, Any]:
    (planes, height, width), actions = zf.Game(game).observation_shape, zf.Game(game).actions
    sizes = {"planes": planes, "height": height, "width": width, "actions": actions}
    return {"game": game, **sizes, "channels": CHANNELS, "blocks": 1, "model": model}


def manifest(described: dict[str, Any], weights: bytes, version: int = 1) -> str:
    return _zerofleet.Network._manifest(json.dumps(described), weights, version, 10 * version)


def network(game: str) -> Network:
    described, weights = alphazero(game)
    return Network(manifest(described, weights), weights)


def learned_model() -> Network:
    described, weights = muzero("cartpole-v1")
    return Network(manifest(described, weights), weights)


def random_positions(game: str, count: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    """Returns random observations, and random legal actions of which at least one is legal."""
    generator = np.random.default_rng(3)
    observations = generator.random((count, *zf.Game(game).observation_shape), dtype=np.float32)
    legal = generator.random((count, zf.Game(game).actions)) < 0.5
    legal[np.arange(count), generator.integers(zf.Game(game).actions, size=count)] = True
    return observations, legal


def test_priors_sum_to_one_over_the_legal_actions_and_values_are_wins_less_losses() -> None:
    of_game = network("connect_four")
    assert (of_game.game, of_game.version, of_game.training_step, of_game.model) == ("connect_four", 1, 10, "alphazero")
    observations, legal = random_positions("connect_four", 50)
    priors, value, wdl = of_game(observations, legal)
    assert priors.shape == (50, 7) and value.shape == (50,) and wdl is not None and wdl.shape == (50, 3)
    np.testing.assert_allclose(priors.sum(axis=1), 1, atol=1e-5)
    assert not priors[~legal].any() and (priors[legal] > 0).all()
    np.testing.assert_allclose(wdl.sum(axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(value, wdl[:, 0] - wdl[:, 2], atol=1e-6)
    assert value.std() > 0.01, "positions have different values"


def test_a_batch_of_300_has_the_evaluations_of_single_positions() -> None:
    of_game = network("tic_tac_toe")
    observations, legal = random_positions("tic_tac_toe", 300)
    together = of_game(observations, legal)
    assert together.wdl is not None
    for index in range(300):
        priors, value, wdl = of_game(observations[index], legal[index])
        assert priors.shape == (9,) and value.shape == () and wdl is not None
        np.testing.assert_allclose(priors, together.priors[index], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(value, together.value[index], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(wdl, together.wdl[index], rtol=1e-4, atol=1e-6)


def test_no_positions_have_empty_evaluations() -> None:
    priors, value, wdl = network("tic_tac_toe")(np.zeros((0, 2, 3, 3)), np.zeros((0, 9), bool))
    assert priors.shape == (0, 9) and value.shape == (0,) and wdl is not None and wdl.shape == (0, 3)


def test_a_learned_model_is_unrolled_step_by_step() -> None:
    of_game = learned_model()
    assert of_game.model == "muzero"
    observations, legal = random_positions("cartpole-v1", 300)
    actions = np.random.default_rng(5).integers(2, size=(300, 4))
    priors, values, rewards = of_game.unroll(observations, legal, actions)
    assert priors.shape == (300, 5, 2) and values.shape == (300, 5) and rewards.shape == (300, 4)
    np.testing.assert_allclose(priors.sum(axis=2), 1, atol=1e-5)
    evaluation = of_game(observations, legal)
    assert evaluation.wdl is None
    np.testing.assert_allclose(evaluation.priors, priors[:, 0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(evaluation.value, values[:, 0], rtol=1e-4, atol=1e-5)
    alone = of_game.unroll(observations[299:], legal[299:], actions[299:, :2])
    np.testing.assert_allclose(alone.values[0], values[299, :3], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(alone.rewards[0], rewards[299, :2], rtol=1e-4, atol=1e-5)
    others = of_game.unroll(observations, legal, 1 - actions)
    assert np.abs(others.rewards - rewards).max() > 1e-3, "rewards depend on the actions"


@pytest.mark.parametrize(
    ("observations", "legal", "actions"),
    [
        (b"\0" * 71, b"\1" * 9, b""),
        (b"\0" * 72, b"\1" * 8, b""),
        (b"\0" * 72, b"\0" * 9, b""),
        (b"\0" * 144, b"\1" * 9, b""),
        (b"\0\0\xc0\x7f" * 18, b"\1" * 9, b""),
        (b"\0" * 72, b"\1" * 9, b"\0"),
        (b"\0" * 72, b"\1" * 9, b"\0\0"),
        (b"", b"", b"\0\0"),
    ],
)
def test_wrong_lengths_and_numbers_are_value_errors(observations: bytes, legal: bytes, actions: bytes) -> None:
    with pytest.raises(ValueError):
        network("tic_tac_toe")._native._evaluate(observations, legal, actions)


def test_wrong_shapes_are_value_errors() -> None:
    observations, legal = random_positions("connect_four", 4)
    for planes, mask in [
        (observations.transpose(0, 2, 3, 1), legal),
        (observations, legal[:3]),
        (observations[0], legal),
    ]:
        with pytest.raises(ValueError, match="must have the shape"):
            network("connect_four")(planes, mask)
    planes, mask = random_positions("cartpole-v1", 4)
    for actions in (np.full((4, 2), 2), np.full((4, 2), -1), np.full((3, 2), 0), np.full((4, 2), 0.5)):
        with pytest.raises(ValueError, match="actions must be"):
            learned_model().unroll(planes, mask, actions)
    with pytest.raises(ValueError, match="muzero"):
        network("connect_four").unroll(observations, legal, np.zeros((4, 1), int))


def test_damaged_weights_and_manifests_are_errors() -> None:
    described, weights = alphazero("tic_tac_toe")
    damaged = weights[:-1] + bytes([weights[-1] ^ 1])
    with pytest.raises(zf.Error, match="damaged"):
        Network(manifest(described, weights), damaged)
    # The manifest matches, but the file lacks the end or the network.
    for content in (weights[:-4], b"", safetensors({"stem": np.zeros(3, np.float32)})):
        with pytest.raises(zf.Error):
            Network(manifest(described, content), content)
    with pytest.raises(zf.Error, match="manifest"):
        Network("{}", weights)
    with pytest.raises(zf.Error, match="16"):
        Network(manifest({**described, "channels": 12}, weights), weights)
    with pytest.raises(zf.Error, match="connect_four"):
        Network(manifest(described, weights), weights, board="connect_four")
    for precision in ("f8", "f16", "int8", "F32"):
        with pytest.raises(ValueError, match="precision: expected f32, bf16 or auto"):
            Network(manifest(described, weights), weights, precision=precision)


@pytest.mark.parametrize(("game", "moves", "best"), [("connect_four", "4 1 4 1 4 1", 3), ("tic_tac_toe", "1 4 2 5", 2)])
@pytest.mark.parametrize("algorithm", ["puct", "gumbel"])
def test_a_win_in_one_is_found_and_proven(game: str, moves: str, best: int, algorithm: str) -> None:
    player = Player(network(game), 200, algorithm=algorithm)
    analysis = player.analyse(moves)
    assert (analysis.best, analysis.proven, analysis.value) == (best, "win", 1.0), analysis
    assert analysis.principal_variation == [best]
    lists = (analysis.visit_counts, analysis.priors, analysis.policy, analysis.action_values)
    assert best in analysis.actions and {len(values) for values in lists} == {len(analysis.actions)}
    assert player.play(moves.split()) == player.play(zf.Game(game).position(moves.split())) == best


def test_equal_seeds_have_equal_analyses_and_settings_matter() -> None:
    of_game = network("connect_four")
    analysis = Player(of_game, 300, seed=4).analyse("4 4")
    assert analysis == Player(of_game, 300, seed=4).analyse([3, 3])
    assert 0 < analysis.simulations <= 300 and analysis.simulations == sum(analysis.visit_counts)
    assert abs(sum(analysis.policy) - 1) < 1e-4
    assert analysis != Player(of_game, 300, seed=4, c_init=20.0).analyse("4 4")
    assert Player(of_game, 300, early_stop=False).analyse("4 4").simulations >= 299


def test_an_analysis_without_simulations_is_the_evaluation_of_the_network() -> None:
    of_game, position = network("connect_four"), zf.Game("connect_four").position([3, 2])
    analysis = Player(of_game).analyse(position, simulations=0)
    priors, value, _ = of_game(position.observation(), position.legal_mask())
    np.testing.assert_allclose(analysis.priors, priors[analysis.actions], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(analysis.value, value, rtol=1e-4, atol=1e-5)
    assert analysis.policy == analysis.priors and analysis.best == priors.argmax()


def test_a_learned_model_is_searched() -> None:
    player = Player(learned_model(), 100, algorithm="gumbel", gumbel_c_scale=0.1)
    analysis = player.analyse([1, 0, 1])
    assert analysis == player.analyse([1, 0, 1])
    assert (analysis.actions, analysis.proven) == ([0, 1], None)
    assert 90 < analysis.simulations <= 100


@pytest.mark.parametrize(("game", "simulations"), [("connect_four", 10**8), ("cartpole-v1", 10**6)])
def test_ctrl_c_ends_a_search(game: str, simulations: int) -> None:
    player = Player(network(game) if game == "connect_four" else learned_model(), early_stop=False)
    timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            player.analyse("", simulations=simulations)
    finally:
        timer.join()
    assert player.analyse("", simulations=10).simulations > 0


def test_progress_is_reported_and_an_exception_in_it_ends_the_search() -> None:
    seen: list[int] = []

    def stop(analysis: _zerofleet.Analysis) -> None:
        seen.append(analysis.simulations)
        if len(seen) == 3:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        Player(network("connect_four"), 10**8, early_stop=False).analyse("", on_progress=stop)
    assert len(seen) == 3 and seen == sorted(seen) and seen[0] > 0


def test_positions_and_settings_that_do_not_fit_are_errors() -> None:
    of_game = network("tic_tac_toe")
    player = Player(of_game)
    with pytest.raises(ValueError, match="over"):
        player.analyse("1 4 2 5 3")
    with pytest.raises(ValueError):
        player.analyse("1 1")
    with pytest.raises(zf.Error, match="not for connect_four"):
        player.analyse(zf.Game("connect_four").start())
    with pytest.raises(TypeError, match="`c_inti` is no setting of a search; settings are ") as unknown:
        Player(of_game, c_inti=1.0)
    for key in str(unknown.value).partition("settings are ")[2].split(", "):
        with pytest.raises((TypeError, ValueError)) as of_value:
            Player(of_game, **{key: None})
        assert "is no setting" not in str(of_value.value), key
    for wrong in (
        {"c_init": -1.0},
        {"c_init": math.nan},
        {"algorithm": "minimax"},
        {"gumbel_considered_actions_max": 0},
    ):
        with pytest.raises(ValueError):
            Player(of_game, **wrong)


def test_a_run_is_played_with_its_settings_and_the_latest_or_a_named_version(tmp_path: Path) -> None:
    described, weights = alphazero("connect_four")
    (tmp_path / "config.toml").write_text(
        '[run]\ngame = "connect_four"\n\n[search]\nc_init = 20.0\nearly_stop = false\n'
    )
    for folder, version in [("weights", 2), ("weights", 10), ("arena", 1)]:
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / f"v{version:06}.json").write_text(manifest(described, weights, version))
        (tmp_path / folder / f"v{version:06}.safetensors").write_bytes(weights)
    player = Player(tmp_path)
    assert (player.game, player.network.version) == ("connect_four", 10)
    assert Player(tmp_path, version=1).network.version == 1
    with pytest.raises(FileNotFoundError, match="v1, v2, v10"):
        Player(tmp_path, version=3)
    as_in_run = Player(player.network, c_init=20.0, early_stop=False)
    assert player.analyse("4") == as_in_run.analyse("4") != Player(tmp_path, c_init=1.25).analyse("4")
    assert Network.load(tmp_path / "weights" / "v000002.json").version == 2
    run = zf.Run(tmp_path)
    assert [Network.load(source).version for source in (run, *run.weights)] == [10, 1, 2, 10]
    assert Player(run).analyse("4") == player.analyse("4")


def test_a_model_folder_is_loaded(tmp_path: Path) -> None:
    described, weights = alphazero("tic_tac_toe")
    config = {"library_name": "zerofleet", "weights": json.loads(manifest(described, weights, 6))}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(weights)
    assert Player(str(tmp_path)).network.version == 6
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="zerofleet"):
        Network.load(tmp_path)
    with pytest.raises(FileNotFoundError):
        Network.load(tmp_path / "missing")


def test_a_model_is_found_by_name_and_searched_with_its_own_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = Path(__file__).parents[2] / "models"
    monkeypatch.setenv("ZEROFLEET_MODELS", str(models))
    monkeypatch.chdir(tmp_path)
    named = Player("connect_four").analyse("4 4 3")
    assert named == Player(models / "connect_four" / "model.safetensors").analyse("4 4 3")
    # The model was trained with Gumbel search, the default is pUCT.
    assert named != Player("connect_four", algorithm="puct").analyse("4 4 3")
