"""Exported models of ONNX answer like the kernels of the CPU."""

from __future__ import annotations

import json
import math
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest

import zerofleet as zf
from zerofleet import _zerofleet
from zerofleet.networks import Network

Floats = npt.NDArray[np.float32]
Architecture = dict[str, Any]

POSITIONS, STEPS = 1000, 5
CHANNELS, HEADS, HEAD_CHANNELS, HIDDEN, SUPPORT, CODES = 32, 4, 32, 64, 5, 6
TOLERANCE = 1e-4
"""Both sides compute in float32, but add in another order."""

DESIGNS: list[Architecture] = [
    {"squeeze_excitation": 8, "global_pooling": 4},
    {"design": {"activation": "mish", "block": "bottleneck", "norm": "group", "heads": "pooled"}, "global_pooling": 4},
    {"design": {"activation": "silu", "norm": "layer", "attention": 2, "attention_heads": HEADS}, "blocks": 1},
    {"design": {"activation": "gelu", "attention": 1, "attention_heads": HEADS, "heads": "pooled"}, "blocks": 0},
]


class RandomTensors:
    """Random tensors of the layers of an architecture, named as in crates/network."""

    def __init__(self, architecture: Architecture) -> None:
        self.architecture = architecture
        self.design = {"activation": "relu", "block": "residual", "norm": "batch", "heads": "flattened"}
        self.design.update(architecture.get("design", {}))
        self.cells = architecture["height"] * architecture["width"]
        self.is_vector = self.cells == 1
        self.tensors: dict[str, Floats] = {}
        self._generator = np.random.default_rng(7)

    def _add(self, name: str, numbers: npt.NDArray[np.float64]) -> None:
        self.tensors[name] = numbers.astype("<f4")

    def _weight(self, name: str, *shape: int) -> None:
        self._add(name, self._generator.standard_normal(shape) / math.sqrt(math.prod(shape[1:])))

    def _norm(self, name: str, size: int) -> None:
        self._add(f"{name}.norm.weight", self._generator.uniform(0.5, 1.5, size))
        self._add(f"{name}.norm.bias", self._generator.uniform(-0.3, 0.3, size))

    def convolution(self, name: str, side: int, inputs: int, outputs: int) -> None:
        self._weight(f"{name}.convolution.weight", outputs, inputs, side, side)
        self._norm(name, outputs)
        if self.design["norm"] == "batch":
            self._add(f"{name}.norm.mean", self._generator.uniform(-0.3, 0.3, outputs))
            self._add(f"{name}.norm.variance", self._generator.uniform(0.5, 2.0, outputs))

    def linear(self, name: str, inputs: int, outputs: int) -> None:
        self._weight(f"{name}.weight", outputs, inputs)
        self._add(f"{name}.bias", self._generator.uniform(-0.3, 0.3, outputs))

    def dense(self, name: str, inputs: int, outputs: int) -> None:
        self._weight(f"{name}.weight", outputs, inputs)
        self._norm(name, outputs)

    def pre_normed(self, name: str, inputs: int, outputs: int) -> None:
        self.linear(name, inputs, outputs)
        self._norm(name, inputs)

    def blocks(self, prefix: str) -> None:
        units, pooled = (self.architecture[key] for key in ("squeeze_excitation", "global_pooling"))
        is_narrow = self.design["block"] == "bottleneck"
        inner = CHANNELS // 2 if is_narrow else CHANNELS
        for index in range(self.architecture["blocks"]):
            name = f"{prefix}{index}"
            if is_narrow:
                self.convolution(f"{name}.down", 1, CHANNELS, inner)
                self.convolution(f"{name}.up", 1, inner, CHANNELS)
            self.convolution(f"{name}.first", 3, inner, inner)
            self.convolution(f"{name}.second", 3, inner, inner)
            if pooled > 0 and index % 3 == 2:
                self.linear(f"{name}.pooling", 2 * pooled, inner - pooled)
            if units > 0:
                self.linear(f"{name}.excitation.hidden", CHANNELS, units)
                self.linear(f"{name}.excitation.output", units, 2 * CHANNELS)

    def attention(self, index: int) -> None:
        name, sides = f"attention.{index}", (self.architecture["height"], self.architecture["width"])
        self.pre_normed(f"{name}.qkv", CHANNELS, 3 * CHANNELS)
        self._weight(f"{name}.position.offsets", HEADS, math.prod(2 * side - 1 for side in sides))
        self.linear(f"{name}.output", CHANNELS, CHANNELS)
        self.pre_normed(f"{name}.hidden", CHANNELS, 2 * CHANNELS)
        self.linear(f"{name}.feed_forward.output", 2 * CHANNELS, CHANNELS)

    def alphazero(self) -> None:
        actions, cells = self.architecture["actions"], self.cells
        self.convolution("stem", 3, self.architecture["planes"], CHANNELS)
        self.blocks("block.")
        for index in range(int(self.design.get("attention", 0))):
            self.attention(index)
        self.convolution("policy", 1, CHANNELS, HEAD_CHANNELS)
        self.convolution("value", 1, CHANNELS, HEAD_CHANNELS)
        if self.design["heads"] == "pooled":
            features = 3 * HEAD_CHANNELS
            self.linear("policy.output", HEAD_CHANNELS, actions // cells)
            if actions % cells > 0:
                self.linear("policy.rest", features, actions % cells)
        else:
            features = cells * HEAD_CHANNELS
            self.linear("policy.output", features, actions)
        self.linear("value.hidden", features, HIDDEN)
        self.linear("value.output", HIDDEN, 3)

    def trunk(self, name: str, inputs: int) -> None:
        if self.is_vector:
            self.dense(f"{name}.input", inputs, CHANNELS)
            for part in [f"{index}.{part}" for index in range(self.architecture["blocks"]) for part in PARTS]:
                self.dense(f"{name}.block.{part}", CHANNELS, CHANNELS)
        else:
            self.convolution(f"{name}.input", 3, inputs, CHANNELS)
            self.blocks(f"{name}.block.")

    def transition(self, name: str, choices: int) -> None:
        if not self.is_vector:
            self.linear(f"{name}.action", choices, 4 * self.cells)
        self.trunk(name, CHANNELS + (choices if self.is_vector else 4))

    def latent(self) -> None:
        """Adds the tensors of a MuZero or Stochastic MuZero network, or of an AlphaZero network of returns."""
        planes, actions = self.architecture["planes"], self.architecture["actions"]
        ((model, sizes),) = self.architecture["model"].items()
        codes, atoms = sizes.get("codes", 0), 2 * SUPPORT + 1
        heads = [("policy", actions), ("value", atoms)]
        self.trunk("representation", planes)
        if model != "alphazero_returns":
            self.transition("dynamics", codes or actions)
            heads.append(("reward", atoms))
        if codes > 0:
            self.transition("afterstate", actions)
            self.trunk("encoder", 2 * planes)
            heads += [("afterstate_value", atoms), ("code", codes), ("encoding", codes)]
        for head, outputs in heads:
            features = HIDDEN
            if self.is_vector:
                self.dense(f"{head}.hidden", CHANNELS, HIDDEN)
            else:
                self.convolution(head, 1, CHANNELS, HEAD_CHANNELS)
                features = self.cells * HEAD_CHANNELS
                if head != "policy":
                    self.linear(f"{head}.hidden", features, HIDDEN)
                    features = HIDDEN
            self.linear(f"{head}.output", features, outputs)

    def safetensors(self) -> bytes:
        header: dict[str, Any] = {}
        end = 0
        for name, tensor in self.tensors.items():
            begin, end = end, end + tensor.nbytes
            header[name] = {"dtype": "F32", "shape": tensor.shape, "data_offsets": [begin, end]}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text + b"".join(tensor.tobytes() for tensor in self.tensors.values())


PARTS = ("first", "second")


def architecture(game: str, **others: Any) -> Architecture:
    (planes, height, width), actions = zf.Game(game).observation_shape, zf.Game(game).actions
    sizes = {"planes": planes, "height": height, "width": width, "actions": actions, "channels": CHANNELS, "blocks": 3}
    return {"game": game, **sizes, "squeeze_excitation": 0, "global_pooling": 0, "model": "alphazero", **others}


def exported(folder: Path, described: Architecture) -> Path:
    """Returns a model folder with random weights, exported by the program from a run."""
    programs = os.environ.get("ZEROFLEET_PROGRAMS")
    if not programs:
        pytest.skip("ZEROFLEET_PROGRAMS names no folder with the programs")
    tensors = RandomTensors(described)
    if described["model"] == "alphazero":
        tensors.alphazero()
    else:
        tensors.latent()
    weights = tensors.safetensors()
    published = folder / "runs" / "first" / "weights"
    published.mkdir(parents=True)
    (published.parent / "config.toml").write_text(f'[run]\ngame = "{described["game"]}"\n')
    (published / "v000001.safetensors").write_bytes(weights)
    (published / "v000001.json").write_text(_zerofleet.Network._manifest(json.dumps(described), weights))
    model = folder / "model"
    run = ["--run", "first", "--runs", str(folder / "runs")]
    command = [f"{programs}/zerofleet", "weights", "export", *run, "--format", "hub", "--output", str(model)]
    subprocess.run(command, check=True)
    return model


def session(file: Path) -> onnxruntime.InferenceSession:
    onnx.checker.check_model(str(file), full_check=True)
    return onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])


def outputs(of: onnxruntime.InferenceSession, **inputs: npt.NDArray[Any]) -> dict[str, Floats]:
    names = [output.name for output in of.get_outputs()]
    return dict(zip(names, of.run(names, inputs), strict=True))


def positions(described: Architecture) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Returns random observations, and legal actions of which at least one is legal."""
    generator = np.random.default_rng(3)
    shape = (described["planes"], described["height"], described["width"])
    observations = generator.integers(2, size=(POSITIONS, *shape)).astype(np.float32)
    legal = generator.random((POSITIONS, described["actions"])) < 0.5
    legal[np.arange(POSITIONS), generator.integers(described["actions"], size=POSITIONS)] = True
    return observations, legal


def check(what: str, got: Floats, expected: Floats) -> None:
    np.testing.assert_allclose(got, expected, rtol=TOLERANCE, atol=TOLERANCE, err_msg=what)


def check_best(got: Floats, expected: Floats) -> None:
    """Checks the best move of each position in which the lead exceeds the tolerance."""
    second, best = np.sort(expected, axis=1)[:, -2:].T
    leads = best - second > 2 * TOLERANCE
    assert leads.any()
    np.testing.assert_array_equal(got[leads].argmax(axis=1), expected[leads].argmax(axis=1))


def softmax(logits: Floats) -> Floats:
    shares: Floats = np.exp(logits - logits.max(axis=1, keepdims=True))
    sums: Floats = shares.sum(axis=1, keepdims=True)
    return shares / sums


@pytest.mark.parametrize("design", DESIGNS, ids=str)
def test_an_alphazero_model_has_the_evaluations_of_the_network(tmp_path: Path, design: Architecture) -> None:
    described = architecture("go-7", **design)
    folder = exported(tmp_path, described)
    observations, legal = positions(described)
    expected = Network.load(folder)(observations, legal)
    got = outputs(session(folder / "model.onnx"), observations=observations, legal=legal)
    check("priors", got["priors"], expected.priors)
    assert expected.wdl is not None
    check("wdl", got["wdl"], expected.wdl)
    check("value", got["value"], expected.value)
    check_best(got["priors"], expected.priors)
    assert not got["priors"][~legal].any()
    assert expected.value.std() > 1e-3, "positions have different values"
    check("logits", softmax(np.where(legal, got["policy_logits"], -np.inf)), expected.priors)


@pytest.mark.parametrize("game", ["cartpole-v1", "catch"])
def test_muzero_models_unroll_like_the_network(tmp_path: Path, game: str) -> None:
    described = architecture(game, model={"muzero": {"support": SUPPORT}})
    folder = exported(tmp_path, described)
    observations, legal = positions(described)
    actions = np.random.default_rng(5).integers(described["actions"], size=(POSITIONS, STEPS))
    expected = Network.load(folder).unroll(observations, legal, actions)
    got = outputs(session(folder / "initial.onnx"), observations=observations)
    check("priors", softmax(np.where(legal, got["policy_logits"], -np.inf)), expected.priors[:, 0])
    check("value", got["value"], expected.values[:, 0])
    recurrent, state = session(folder / "recurrent.onnx"), got["state"]
    for step in range(STEPS):
        got = outputs(recurrent, state=state, action=actions[:, step].astype(np.int64))
        priors = softmax(got["policy_logits"])
        check(f"priors after {step + 1}", priors, expected.priors[:, step + 1])
        check_best(priors, expected.priors[:, step + 1])
        check(f"value after {step + 1}", got["value"], expected.values[:, step + 1])
        check(f"reward of {step + 1}", got["reward"], expected.rewards[:, step])
        state = got["next_state"]
    assert expected.rewards.std() > 0.01, "rewards differ"


@pytest.mark.parametrize("game", ["cartpole-v1", "catch"])
def test_an_alphazero_model_of_returns_has_the_evaluations_of_the_network(tmp_path: Path, game: str) -> None:
    described = architecture(game, model={"alphazero_returns": {"support": SUPPORT}})
    folder = exported(tmp_path, described)
    observations, legal = positions(described)
    expected = Network.load(folder)(observations, legal)
    got = outputs(session(folder / "model.onnx"), observations=observations, legal=legal)
    check("priors", got["priors"], expected.priors)
    check_best(got["priors"], expected.priors)
    assert not got["priors"][~legal].any()
    check("value", got["value"], expected.value)
    assert expected.value.std() > 1e-3, "positions have different values"


STOCHASTIC: Architecture = {"model": {"stochastic_muzero": {"support": SUPPORT, "codes": CODES}}}


@pytest.mark.parametrize("game", ["cartpole-v1", "catch"])
def test_the_initial_stochastic_muzero_model_has_the_evaluations_of_the_network(tmp_path: Path, game: str) -> None:
    described = architecture(game, **STOCHASTIC)
    folder = exported(tmp_path, described)
    observations, legal = positions(described)
    expected = Network.load(folder)(observations, legal)
    got = outputs(session(folder / "initial.onnx"), observations=observations)
    check("priors", softmax(np.where(legal, got["policy_logits"], -np.inf)), expected.priors)
    check("value", got["value"], expected.value)
    assert expected.value.std() > 1e-3, "positions have different values"


@pytest.mark.parametrize("game", ["cartpole-v1", "catch"])
def test_stochastic_muzero_models_step_like_modules_of_pytorch(tmp_path: Path, game: str) -> None:
    torch = pytest.importorskip("torch")
    zt = pytest.importorskip("zerofleet.torch")
    described = architecture(game, **STOCHASTIC)
    folder = exported(tmp_path, described)
    net = zt.load(folder)
    observations, _ = positions(described)
    generator = np.random.default_rng(5)
    actions = generator.integers(described["actions"], size=POSITIONS, dtype=np.int64)
    codes = generator.integers(CODES, size=POSITIONS, dtype=np.int64)
    state = outputs(session(folder / "initial.onnx"), observations=observations)["state"]
    got = outputs(session(folder / "afterstate.onnx"), state=state, action=actions)
    with torch.no_grad():
        afterstate = net.afterstate_inference(torch.from_numpy(state), torch.from_numpy(actions))
        after = net.recurrent_inference(afterstate.state, torch.from_numpy(codes))
    check("afterstate", got["afterstate"], afterstate.state.numpy())
    check("code logits", got["code_logits"], afterstate.policy_logits.numpy())
    check("value of the afterstate", got["value"], afterstate.value.numpy())
    got = outputs(session(folder / "recurrent.onnx"), afterstate=got["afterstate"], code=codes)
    check("next state", got["next_state"], after.state.numpy())
    check("policy logits", got["policy_logits"], after.policy_logits.numpy())
    check("value", got["value"], after.value.numpy())
    check("reward", got["reward"], after.reward.numpy())
    assert got["reward"].std() > 0.01, "rewards differ"


def test_a_model_folder_has_a_card_with_a_header(tmp_path: Path) -> None:
    folder = exported(tmp_path, architecture("go-7"))
    _, header, text = (folder / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    lines = dict(line.split(": ", 1) for line in header.splitlines())
    assert json.loads(lines["library_name"]) == "zerofleet"
    assert json.loads(lines["tags"]) == ["go-7", "alphazero"]
    assert "zerofleet play --weights" in text and "training" in text
    names = ["README.md", "config.json", "model.onnx", "model.safetensors", "run.toml"]
    assert sorted(path.name for path in folder.iterdir()) == names
