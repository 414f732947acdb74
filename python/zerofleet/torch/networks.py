"""Networks: AlphaZero, AlphaZero of returns, MuZero and Stochastic MuZero."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from .architecture import ACTION_PLANES, Architecture
from .layers import ACTIVATIONS, Attention, Block, Convolution, Dense, DenseBlock, DenseHead, Head, initialise, to_cells

# ε of the transform of returns: keeps it invertible with a bounded slope.
_EPSILON = 0.001
# Added to the range of a latent state, so that a constant state gives zeros.
_RANGE_EPSILON = 1e-5


class Output(NamedTuple):
    """Predictions of an AlphaZero network for B positions, for the player to move."""

    policy_logits: Tensor
    """`[B, A]`, illegal actions included."""
    wdl_logits: Tensor
    """`[B, 3]`: win, draw, loss."""

    @property
    def value(self) -> Tensor:
        """Win − loss, `[B]` in [−1, 1]."""
        win, _, loss = self.wdl_logits.softmax(-1).unbind(-1)
        return win - loss


class LatentOutput(NamedTuple):
    """Predictions of a network of latent states, for the player to move."""

    state: Tensor
    """`[B, channels, H, W]`, or `[B, channels]` of a dense network."""
    policy_logits: Tensor
    """`[B, A]`; logits of the chance codes `[B, M]` of an afterstate."""
    value_logits: Tensor
    """`[B, 2n + 1]` over the integers from −n to n, after the transform."""
    reward_logits: Tensor | None = None
    """As `value_logits`, for the player who took the action; None where there was no step."""

    @property
    def value(self) -> Tensor:
        """Return, `[B]`."""
        return expectation(self.value_logits)

    @property
    def reward(self) -> Tensor:
        """Reward of the step, `[B]`; 0 where there was none."""
        if self.reward_logits is None:
            return torch.zeros_like(self.value_logits[:, 0])
        return expectation(self.reward_logits)


def expectation(logits: Tensor) -> Tensor:
    """Returns the numbers `[B]` that logits `[B, 2n + 1]` predict: the inverse transform of the softmax mean."""
    bound = logits.shape[-1] // 2
    atoms = torch.arange(-bound, bound + 1, dtype=logits.dtype, device=logits.device)
    x = logits.softmax(-1) @ atoms
    # The usual form of the inverse loses small numbers to differences in float32.
    c = 1 + 2 * _EPSILON
    s = (c * c + 4 * _EPSILON * x.abs()).sqrt()
    d = x * (2 - 4 * _EPSILON / (c + s)) / (s + 1)
    return d * (d.abs() + 2)


def categorical_loss(logits: Tensor, numbers: Tensor) -> Tensor:
    """Returns the cross-entropies `[B]` of logits `[B, 2n + 1]` against returns or rewards `[B]`, in nats.

    The target is the distribution over two adjacent atoms with the mean `sign(x) (√(|x| + 1) − 1) + 0.001 x`.
    """
    bound = logits.shape[-1] // 2
    transformed = numbers / ((numbers.abs() + 1).sqrt() + 1) + _EPSILON * numbers
    position = transformed.clamp(-bound, bound) + bound
    lower = position.floor().clamp(max=2 * bound - 1)
    logs = logits.log_softmax(-1).gather(-1, torch.stack([lower, lower + 1], dim=-1).long())
    return -torch.lerp(logs[..., 0], logs[..., 1], position - lower)


def alphazero_loss(output: Output, batch: Any) -> Tensor:
    """Returns policy loss plus value loss for a `zerofleet.Batch`, in nats: the cross-entropies of the learner.

    The policy counts over legal actions, by `policy_weights`, and both by `importance`, where the batch has these.
    """
    device = output.policy_logits.device

    def rows(name: str) -> Tensor:
        array = getattr(batch, name, None)
        return torch.ones(1, device=device) if array is None else torch.as_tensor(array, device=device)

    logits = output.policy_logits.masked_fill(rows("legal") == 0, -1e9)
    policy = functional.cross_entropy(logits, rows("policies"), reduction="none")
    value = functional.cross_entropy(output.wdl_logits, rows("wdl"), reduction="none")
    weights, importance = rows("policy_weights").expand_as(policy), rows("importance")
    return (policy * weights * importance).sum() / weights.sum().clamp(min=1) + (value * importance).mean()


class _Network(nn.Module):
    """A network that remembers the architecture of the manifest."""

    model: ClassVar[str]

    def __init__(self, architecture: Mapping[str, Any]) -> None:
        super().__init__()
        self.architecture = dict(architecture)
        self.sizes = Architecture.of(architecture)
        if self.sizes.model != self.model:
            name = type(self).__name__
            raise NotImplementedError(f"{name} has no model `{self.sizes.model}`: call `zerofleet.torch.network`")


class AlphaZeroNet(_Network):
    """A tower with a policy head and a head of win, draw and loss.

    `architecture` is the field of a manifest. The keys of `state_dict()` are the tensor names of files.
    """

    model = "alphazero"

    def __init__(self, architecture: Mapping[str, Any]) -> None:
        super().__init__(architecture)
        of = self.sizes
        self.stem = Convolution(of.planes, of.channels, 3, of.norm)
        self.block = nn.ModuleList(Block(of, index) for index in range(of.blocks))
        self.attention = nn.ModuleList(Attention(of) for _ in range(of.attention))
        self.policy = Head(of, of.actions, has_hidden=False)
        self.value = Head(of, 3, has_hidden=True)
        initialise(self)

    def forward(self, observations: Tensor) -> Output:
        """Predicts for observations `[B, C, H, W]`."""
        x = ACTIVATIONS[self.sizes.activation](self.stem(observations))
        for block in self.block:
            x = block(x)
        board, cells = x.shape[2:], to_cells(x)
        for block in self.attention:
            cells = block(cells)
            x = cells.transpose(1, 2).unflatten(2, board)
        return Output(self.policy(x), self.value(x))


class Trunk(nn.Module):
    """Part of a network that computes latent states, dense or residual.

    With `choices`, it reads a state and one of so many actions or codes; without, observations.
    """

    def __init__(self, of: Architecture, inputs: int, choices: int = 0) -> None:
        super().__init__()
        self.board = of.height, of.width
        self.is_dense = of.is_vector
        self.action = None
        self.input: nn.Module
        if of.is_vector:
            self.input = Dense(inputs + choices, of.channels)
            self.block = nn.ModuleList(DenseBlock(of.channels) for _ in range(of.blocks))
        else:
            if choices:
                self.action = nn.Linear(choices, ACTION_PLANES * of.cells)
                inputs += ACTION_PLANES
            self.input = Convolution(inputs, of.channels, 3)
            self.block = nn.ModuleList(Block(of, index) for index in range(of.blocks))

    def forward(self, x: Tensor, choices: Tensor | None = None) -> Tensor:
        """Maps observations, or states and one-hot choices `[B, choices]`, to states before the rescaling."""
        if self.is_dense:
            x = x.flatten(1)
        if choices is not None:
            if self.action is not None:
                choices = self.action(choices).unflatten(1, (ACTION_PLANES, *self.board))
            x = torch.cat([x, choices], dim=1)
        x = functional.relu(self.input(x))
        for block in self.block:
            x = block(x)
        return x


def rescale(states: Tensor) -> Tensor:
    """Rescales each state to [0, 1] over all elements."""
    elements = tuple(range(1, states.dim()))
    least, most = states.amin(elements, keepdim=True), states.amax(elements, keepdim=True)
    return (states - least) / (most - least + _RANGE_EPSILON)


class _LatentNet(_Network):
    """Representation and prediction, which all networks of latent states have."""

    def __init__(self, architecture: Mapping[str, Any]) -> None:
        super().__init__(architecture)
        of = self.sizes
        self.representation = Trunk(of, of.planes)
        self.policy = DenseHead(of, of.actions) if of.is_vector else Head(of, of.actions, has_hidden=False)
        self.value = self._head(2 * of.support + 1)
        initialise(self)

    def _head(self, outputs: int) -> nn.Module:
        return DenseHead(self.sizes, outputs) if self.sizes.is_vector else Head(self.sizes, outputs, has_hidden=True)

    def initial_inference(self, observations: Tensor) -> LatentOutput:
        """Predicts for observations `[B, C, H, W]`."""
        state = rescale(self.representation(observations))
        return LatentOutput(state, self.policy(state), self.value(state))

    def forward(self, observations: Tensor) -> LatentOutput:
        """Returns `initial_inference(observations)`."""
        return self.initial_inference(observations)


class ReturnsNet(_LatentNet):
    """An AlphaZero network for games scored by rewards: `value` of the output is a return."""

    model = "alphazero_returns"


class MuZeroNet(_LatentNet):
    """A MuZero network, dense for vector observations and residual for all others."""

    model = "muzero"

    def __init__(self, architecture: Mapping[str, Any]) -> None:
        super().__init__(architecture)
        of = self.sizes
        self.choices = of.codes or of.actions
        self.dynamics = Trunk(of, of.channels, self.choices)
        self.reward = self._head(2 * of.support + 1)
        initialise(self)

    def recurrent_inference(self, state: Tensor, actions: Tensor) -> LatentOutput:
        """Steps from states by actions `[B]`, integers, or one-hot rows `[B, A]`."""
        state = rescale(self.dynamics(state, _one_hot(actions, self.choices, state)))
        return LatentOutput(state, self.policy(state), self.value(state), self.reward(state))


class StochasticMuZeroNet(MuZeroNet):
    """A Stochastic MuZero network: `recurrent_inference` steps from afterstates by chance codes `[B]` or `[B, M]`."""

    model = "stochastic_muzero"

    def __init__(self, architecture: Mapping[str, Any]) -> None:
        super().__init__(architecture)
        of = self.sizes
        self.afterstate = Trunk(of, of.channels, of.actions)
        self.afterstate_value = self._head(2 * of.support + 1)
        self.code = self._head(of.codes)
        self.encoder = Trunk(of, 2 * of.planes)
        self.encoding = self._head(of.codes)
        initialise(self)

    def afterstate_inference(self, state: Tensor, actions: Tensor) -> LatentOutput:
        """Steps from states by actions `[B]`, or one-hot rows `[B, A]`, to afterstates.

        The policy of the output is over chance codes, the value for the player who took the action.
        """
        state = rescale(self.afterstate(state, _one_hot(actions, self.sizes.actions, state)))
        return LatentOutput(state, self.code(state), self.afterstate_value(state))

    def encode(self, before: Tensor, after: Tensor) -> Tensor:
        """Maps observations before and after a step to numbers `[B, M]`; the index of the largest is the code.

        The learner subtracts the mean over the batch first.
        """
        encoding: Tensor = self.encoding(self.encoder(torch.cat([before, after], dim=1)))
        return encoding


def _one_hot(choices: Tensor, count: int, like: Tensor) -> Tensor:
    if choices.dim() == 1:
        choices = functional.one_hot(choices.long(), count)
    return choices.to(like.dtype)


Network = AlphaZeroNet | ReturnsNet | MuZeroNet


def network(architecture: Mapping[str, Any]) -> Network:
    """Creates a network with new random weights for the field `architecture` of a manifest."""
    kinds: tuple[type[Network], ...] = (AlphaZeroNet, ReturnsNet, MuZeroNet, StochasticMuZeroNet)
    return {kind.model: kind for kind in kinds}[Architecture.of(architecture).model](architecture)
