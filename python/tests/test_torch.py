"""Networks in PyTorch against the float32 kernel, and files in both directions."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from zerofleet import _zerofleet, safetensors
from zerofleet.errors import Error
from zerofleet.networks import Network

torch = pytest.importorskip("torch")
zt = pytest.importorskip("zerofleet.torch")
# Threads would wait for each other on busy cores.
torch.set_num_threads(1)

TOLERANCE = 1e-4
POSITIONS = 256
BOARD = {"game": "any", "planes": 3, "height": 5, "width": 4, "actions": 42, "channels": 32, "blocks": 3}
VECTOR = {"game": "any", "planes": 6, "height": 1, "width": 1, "actions": 3, "channels": 32, "blocks": 2}
OPTIONS = {"squeeze_excitation": 8, "global_pooling": 12}
ATTENTION = {"attention": 2, "attention_heads": 4}

ALPHAZERO = {
    "plain": BOARD,
    "no block": BOARD | {"blocks": 0},
    "options": BOARD | OPTIONS,
    "mish bottleneck": BOARD | OPTIONS | {"design": {"activation": "mish", "block": "bottleneck"}},
    "layer norm": BOARD | OPTIONS | {"design": {"activation": "silu", "norm": "layer"}},
    "group norm": BOARD | {"design": {"activation": "gelu", "norm": "group", "block": "bottleneck"}},
    "attention": BOARD | {"blocks": 1, "design": {"activation": "gelu", **ATTENTION}},
    "attention alone": BOARD | {"blocks": 0, "design": {"norm": "layer", "heads": "pooled", **ATTENTION}},
    "pooled heads": BOARD | OPTIONS | {"design": {"heads": "pooled", "norm": "group"}},
    "pooled heads, cells alone": BOARD | {"actions": 40, "design": {"heads": "pooled"}},
}
RETURNS = {"model": {"alphazero_returns": {"support": 10}}}
MUZERO = {"model": {"muzero": {"support": 10}}}
STOCHASTIC = {"model": {"stochastic_muzero": {"support": 10, "codes": 5}}}
LATENT = {
    f"{name} {shape}": board | model
    for name, model in (("returns", RETURNS), ("muzero", MUZERO), ("stochastic muzero", STOCHASTIC))
    for shape, board in (("dense", VECTOR), ("residual", BOARD | OPTIONS))
}


def network(architecture, seed=1):
    """Returns a network in which every tensor, also of norms and biases, is random."""
    torch.manual_seed(seed)
    net = zt.network(architecture)
    with torch.no_grad():
        for name, tensor in net.state_dict().items():
            if name.endswith(("norm.weight", "norm.variance")):
                tensor.uniform_(0.5, 1.5)
            elif tensor.dim() == 1 or name.endswith("offsets"):
                tensor.normal_(0, 0.3)
            elif name.endswith((".output.weight", ".rest.weight", ".pooling.weight")):
                tensor.mul_(6)
    return net.eval()


def positions(architecture):
    """Returns observations and legal actions; every position has one."""
    rng = np.random.default_rng(2)
    shape = [architecture[key] for key in ("planes", "height", "width")]
    observations = (rng.random((POSITIONS, *shape)) < 0.4).astype(np.float32)
    legal = rng.random((POSITIONS, architecture["actions"])) < 0.6
    legal[:, 0] = True
    return observations, legal


def assert_policy(logits, legal, priors):
    logs = logits.masked_fill(~torch.from_numpy(legal), -1e9).log_softmax(-1).numpy()
    np.testing.assert_allclose(logs[legal], np.log(priors[legal]), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", ALPHAZERO)
@torch.no_grad()
def test_an_alphazero_network_computes_what_the_kernel_computes(name, tmp_path):
    zt.save(network(ALPHAZERO[name]), tmp_path)
    observations, legal = positions(ALPHAZERO[name])
    output = zt.load(tmp_path)(torch.from_numpy(observations))
    expected = Network.load(tmp_path)(observations, legal)
    assert_policy(output.policy_logits, legal, expected.priors)
    np.testing.assert_allclose(output.value, expected.value, rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(output.wdl_logits.softmax(-1), expected.wdl, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", LATENT)
@torch.no_grad()
def test_a_network_of_latent_states_computes_what_the_kernel_computes(name, tmp_path):
    zt.save(network(LATENT[name]), tmp_path)
    net = zt.load(tmp_path)
    observations, legal = positions(LATENT[name])
    steps = 3 if name.startswith("muzero") else 0
    actions = np.random.default_rng(3).integers(0, LATENT[name]["actions"], (POSITIONS, steps))
    priors, values, rewards = Network.load(tmp_path).unroll(observations, legal, actions)
    output = net.initial_inference(torch.from_numpy(observations))
    for step in range(steps + 1):
        assert_policy(output.policy_logits, legal if step == 0 else np.ones_like(legal), priors[:, step])
        np.testing.assert_allclose(output.value, values[:, step], rtol=TOLERANCE, atol=TOLERANCE)
        if step > 0:
            np.testing.assert_allclose(output.reward, rewards[:, step - 1], rtol=TOLERANCE, atol=TOLERANCE)
        if step < steps:
            output = net.recurrent_inference(output.state, torch.from_numpy(actions[:, step]))


@torch.no_grad()
def test_chance_codes_lead_from_afterstates_to_states():
    net = network(LATENT["stochastic muzero residual"])
    observations = torch.from_numpy(positions(BOARD)[0][:4])
    afterstate = net.afterstate_inference(net(observations).state, torch.tensor([0, 1, 2, 3]))
    assert afterstate.policy_logits.shape == (4, 5) and afterstate.reward_logits is None
    codes = net.encode(observations, observations.flip(0)).argmax(-1)
    output = net.recurrent_inference(afterstate.state, codes)
    one_hot = net.recurrent_inference(afterstate.state, torch.nn.functional.one_hot(codes, 5).float())
    assert output.policy_logits.shape == (4, 42) and torch.equal(output.value, one_hot.value)


@pytest.mark.parametrize("architecture", [*ALPHAZERO.values(), *LATENT.values()], ids=[*ALPHAZERO, *LATENT])
def test_a_network_that_was_saved_is_loaded_with_equal_tensors(architecture, tmp_path):
    net = network(architecture)
    zt.save(net, tmp_path, version=7, training_step=70)
    loaded = zt.load(tmp_path)
    assert list(loaded.state_dict()) == list(net.state_dict())
    # A manifest has the defaults, too.
    design = {"activation": "relu", "block": "residual"} | architecture.get("design", {})
    expected = architecture | ({"design": design} if "design" in architecture else {})
    assert loaded.architecture | expected == loaded.architecture
    assert all(torch.equal(tensor, loaded.state_dict()[name]) for name, tensor in net.state_dict().items())
    manifest = json.loads((tmp_path / "config.json").read_text())["weights"]
    assert (manifest["version"], manifest["training_step"]) == (7, 70)


def test_a_version_of_a_run_is_selected_by_number_or_the_latest(tmp_path):
    for version, folder in ((2, "arena"), (11, "weights"), (12, "weights")):
        zt.save(network(BOARD, seed=version), tmp_path / "model", version=version)
        (tmp_path / folder).mkdir(exist_ok=True)
        manifest = json.loads((tmp_path / "model/config.json").read_text())["weights"]
        (tmp_path / folder / f"v{version:06}.json").write_text(json.dumps(manifest))
        (tmp_path / "model/model.safetensors").rename(tmp_path / folder / f"v{version:06}.safetensors")
    for version, source, selected in ((12, ".", None), (2, ".", 2), (11, "weights/v000011.json", None)):
        loaded = zt.load(tmp_path / source, selected)
        assert torch.equal(loaded.stem.convolution.weight, network(BOARD, seed=version).stem.convolution.weight)
    with pytest.raises(FileNotFoundError, match="v3"):
        zt.load(tmp_path, 3)


def test_a_state_dict_with_other_names_shapes_or_numbers_is_refused_by_name(tmp_path):
    state = network(BOARD).state_dict()
    wrong = {
        "missing": {name: tensor for name, tensor in state.items() if name != "stem.norm.mean"},
        "expected no such name": state | {"stem.norm.num_batches_tracked": torch.tensor(1)},
        r"`value.output.bias` is float32\[2\]": state | {"value.output.bias": torch.zeros(2)},
        "`policy.output.bias` has numbers": state | {"policy.output.bias": torch.full((42,), torch.nan)},
    }
    for reason, tensors in wrong.items():
        with pytest.raises(Error, match=reason):
            zt.save(tensors, tmp_path, architecture=BOARD)
    zt.save(state, tmp_path, architecture=BOARD)
    with pytest.raises(ValueError, match="architecture"):
        zt.save(state, tmp_path)


def test_tensors_in_bfloat16_are_loaded_as_float32(tmp_path):
    net = network(BOARD).bfloat16()
    tensors = {name: tensor.view(torch.int16).numpy().view(np.uint16) for name, tensor in net.state_dict().items()}
    safetensors.save(tmp_path / "model.safetensors", tensors, {})
    weights = (tmp_path / "model.safetensors").read_bytes()
    manifest = json.loads(_zerofleet.Network._manifest(json.dumps(BOARD), weights))
    (tmp_path / "config.json").write_text(json.dumps({"library_name": "zerofleet", "weights": manifest}))
    for name, tensor in zt.load(tmp_path).state_dict().items():
        assert torch.equal(tensor, net.state_dict()[name].float()), name


def test_damaged_weights_are_refused(tmp_path):
    zt.save(network(BOARD), tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\1")
    with pytest.raises(Error, match="digest"):
        zt.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"design": {"activation": "tanh"}}, "activation `tanh`"),
        ({"design": {"dropout": 1}}, "`dropout`"),
        ({"design": {"norm": "layer"}, **MUZERO}, "norm `layer`"),
        ({"model": "dreamer"}, "model `dreamer`"),
        ({"model": {"muzero": {"support": 5, "value_prefix": True}}}, "`value_prefix`"),
        ({"shuffle": 1}, "`shuffle`"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(change, reason):
    with pytest.raises(NotImplementedError, match=reason):
        zt.network(BOARD | change)


@pytest.mark.parametrize(
    "change",
    [
        {"blocks": 10**9},
        {"channels": 0},
        {"width": 2.5},
        {"design": {"attention": 1, "attention_heads": 5}},
        {"channels": 33, "design": {"block": "bottleneck"}},
        {"channels": 24, "design": {"norm": "group"}},
        {"actions": 19, "design": {"heads": "pooled"}},
        {"global_pooling": 32},
    ],
)
def test_sizes_that_do_not_fit_are_refused(change):
    with pytest.raises(ValueError):
        zt.network(BOARD | change)
    with pytest.raises(ValueError, match="blocks"):
        zt.network({key: size for key, size in BOARD.items() if key != "blocks"})


def test_training_learns_a_batch_and_updates_running_statistics():
    torch.manual_seed(4)
    net, (observations, legal) = zt.AlphaZeroNet(BOARD | OPTIONS).train(), positions(BOARD)
    policies = (legal / legal.sum(1, keepdims=True)).astype(np.float32)
    wdl = np.eye(3, dtype=np.float32)[np.arange(POSITIONS) % 3]
    batch = SimpleNamespace(policies=policies, wdl=wdl)
    optimiser = torch.optim.AdamW(net.parameters(), lr=3e-3)
    losses = []
    for _ in range(30):
        loss = zt.alphazero_loss(net(torch.from_numpy(observations)), batch)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(np.log(42) + np.log(3), abs=0.3)
    assert losses[-1] < losses[0] - 0.5, losses
    assert all(parameter.grad is not None for parameter in net.parameters())
    assert net.stem.norm.mean.abs().max() > 0.01


def test_the_policy_loss_counts_legal_actions_and_weights_as_the_learner_does():
    output = zt.Output(torch.tensor([[0.0, 0.0, 5.0], [1.0, 1.0, 1.0], [9.0, 0.0, 0.0]]), torch.zeros(3, 3))
    batch = SimpleNamespace(
        policies=np.float32([[0.5, 0.5, 0], [1, 0, 0], [0, 0, 1]]),
        wdl=np.eye(3, dtype=np.float32),
        legal=np.uint8([[1, 1, 0], [1, 1, 1], [1, 0, 1]]),
        policy_weights=np.float32([1, 1, 0]),
        importance=np.float32([1, 0.5, 0.25]),
    )
    expected = (np.log(2) + 0.5 * np.log(3)) / 2 + np.log(3) * (1 + 0.5 + 0.25) / 3
    assert zt.alphazero_loss(output, batch).item() == pytest.approx(expected, rel=1e-6)


def test_the_loss_of_a_number_is_least_where_it_is_predicted():
    numbers = torch.tensor([-300.0, -1.0, 0.0, 0.25, 17.0])
    logits = torch.zeros(5, 41, requires_grad=True)
    optimiser = torch.optim.Adam([logits], lr=0.3)
    for _ in range(200):
        optimiser.zero_grad()
        zt.categorical_loss(logits, numbers).sum().backward()
        optimiser.step()
    predicted = zt.LatentOutput(logits, logits, logits.detach()).value
    np.testing.assert_allclose(predicted, numbers, rtol=0.01, atol=0.01)
