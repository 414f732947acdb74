"""Layers with the tensor names of files. x is `[B, C, H, W]` where nothing else is stated."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from .architecture import GROUP_CHANNELS, HEAD_CHANNELS, VALUE_HIDDEN, Architecture

EPSILON = 1e-5
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "mish": functional.mish,
    "silu": functional.silu,
    "gelu": lambda x: functional.gelu(x, approximate="tanh"),
}


class BatchNorm(nn.Module):
    """Batch norm with the running statistics `mean` and `variance` of files."""

    mean: Tensor
    variance: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("variance", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        affine = self.weight, self.bias
        return functional.batch_norm(x, self.mean, self.variance, *affine, self.training, momentum=0.1, eps=EPSILON)


class CellNorm(nn.LayerNorm):
    """Layer norm over the channels of each cell."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Convolution(nn.Module):
    """A convolution without bias that keeps height and width, then the norm."""

    def __init__(self, inputs: int, outputs: int, side: int, norm: str = "batch") -> None:
        super().__init__()
        self.convolution = nn.Conv2d(inputs, outputs, side, padding=side // 2, bias=False)
        self.norm: nn.Module
        if norm == "batch":
            self.norm = BatchNorm(outputs)
        elif norm == "layer":
            self.norm = CellNorm(outputs, eps=EPSILON)
        else:
            self.norm = nn.GroupNorm(outputs // GROUP_CHANNELS, outputs, eps=EPSILON)

    def forward(self, x: Tensor) -> Tensor:
        normed: Tensor = self.norm(self.convolution(x))
        return normed


class Dense(nn.Linear):
    """A matrix without bias, then layer norm: `[B, in]` to `[B, out]`."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)
        self.norm = nn.LayerNorm(outputs, eps=EPSILON)

    def forward(self, input: Tensor) -> Tensor:
        normed: Tensor = self.norm(super().forward(input))
        return normed


class PreNormed(nn.Linear):
    """Layer norm, then a matrix with bias: `[…, in]` to `[…, out]`."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.norm = nn.LayerNorm(inputs, eps=EPSILON)

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(self.norm(input))


class Excitation(nn.Module):
    """Squeeze-and-excitation with a shift."""

    def __init__(self, channels: int, units: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(channels, units)
        self.output = nn.Linear(units, 2 * channels)

    def forward(self, x: Tensor) -> Tensor:
        t: Tensor = self.output(functional.relu(self.hidden(x.mean((2, 3)))))
        scale, shift = t[:, :, None, None].chunk(2, dim=1)
        return x * scale.sigmoid() + shift


class Block(nn.Module):
    """A residual or bottleneck block with the options of the architecture."""

    def __init__(self, of: Architecture, index: int) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[of.activation]
        inner, norm = of.inner_channels, of.norm
        narrows = of.block == "bottleneck"
        self.down = Convolution(of.channels, inner, 1, norm) if narrows else None
        self.first = Convolution(inner, inner, 3, norm)
        self.second = Convolution(inner, inner, 3, norm)
        self.up = Convolution(inner, of.channels, 1, norm) if narrows else None
        self.pooled = of.global_pooling
        pools = self.pooled > 0 and index % 3 == 2
        self.pooling = nn.Linear(2 * self.pooled, inner - self.pooled) if pools else None
        self.excitation = Excitation(of.channels, of.squeeze_excitation) if of.squeeze_excitation else None

    def forward(self, x: Tensor) -> Tensor:
        y = x if self.down is None else self.activation(self.down(x))
        y = self.first(y)
        if self.pooling is not None:
            summary = self.activation(y[:, : self.pooled])
            shift = self.pooling(torch.cat([summary.mean((2, 3)), summary.amax((2, 3))], dim=1))
            y = torch.cat([y[:, : self.pooled], y[:, self.pooled :] + shift[:, :, None, None]], dim=1)
        y = self.second(self.activation(y))
        if self.up is not None:
            y = self.up(self.activation(y))
        if self.excitation is not None:
            y = self.excitation(y)
        return self.activation(y + x)


class DenseBlock(nn.Module):
    """Two dense layers; the block input is added before the last ReLU. x is `[B, units]`."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.first = Dense(units, units)
        self.second = Dense(units, units)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.second(functional.relu(self.first(x))) + x)


class Offsets(nn.Module):
    """A learned number per attention head and offset between two cells."""

    index: Tensor

    def __init__(self, heads: int, height: int, width: int) -> None:
        super().__init__()
        self.offsets = nn.Parameter(torch.zeros(heads, (2 * height - 1) * (2 * width - 1)))
        # On the CPU also where parameters are made without numbers.
        cells = torch.arange(height * width, device="cpu")
        row, column = cells // width, cells % width
        down = row[None, :] - row[:, None] + height - 1
        right = column[None, :] - column[:, None] + width - 1
        self.register_buffer("index", down * (2 * width - 1) + right, persistent=False)

    def forward(self) -> Tensor:
        """Returns the numbers of all pairs of cells, `[heads, H · W, H · W]`: from, to."""
        return self.offsets[:, self.index]


class Attention(nn.Module):
    """A transformer layer over the cells of a position."""

    def __init__(self, of: Architecture) -> None:
        super().__init__()
        channels = of.channels
        self.activation = ACTIVATIONS[of.activation]
        self.heads = of.attention_heads
        self.qkv = PreNormed(channels, 3 * channels)
        self.position = Offsets(self.heads, of.height, of.width)
        self.output = nn.Linear(channels, channels)
        self.hidden = PreNormed(channels, 2 * channels)
        self.feed_forward = nn.ModuleDict({"output": nn.Linear(2 * channels, channels)})

    def forward(self, x: Tensor) -> Tensor:
        """Maps cells `[B, H · W, C]` to cells."""
        size = x.shape[-1] // self.heads
        # `[B, heads, H · W, C / heads]` each.
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, size)).permute(2, 0, 3, 1, 4)
        scores = (q * size**-0.5) @ k.transpose(-1, -2) + self.position()
        x = x + self.output((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        added: Tensor = self.feed_forward["output"](self.activation(self.hidden(x)))
        return x + added


def to_cells(x: Tensor) -> Tensor:
    """Converts x to cells `[B, H · W, C]`, row by row."""
    return x.permute(0, 2, 3, 1).flatten(1, 2)


def pool(cells: Tensor) -> Tensor:
    """Maps cells `[B, H · W, C]` to means, scaled means and maxima `[B, 3C]`."""
    mean = cells.mean(1)
    scale = (cells.shape[1] ** 0.5 - 14) / 10
    return torch.cat([mean, scale * mean, cells.amax(1)], dim=1)


class Head(Convolution):
    """A 1×1 convolution and one or two matrices: x to `[B, outputs]`."""

    def __init__(self, of: Architecture, outputs: int, *, has_hidden: bool) -> None:
        super().__init__(of.channels, HEAD_CHANNELS, 1, of.norm)
        self.activation = ACTIVATIONS[of.activation]
        self.pools = of.heads == "pooled"
        self.hidden = self.rest = None
        features = 3 * HEAD_CHANNELS if self.pools else HEAD_CHANNELS * of.cells
        if has_hidden:
            self.hidden = nn.Linear(features, VALUE_HIDDEN)
            self.output = nn.Linear(VALUE_HIDDEN, outputs)
        elif self.pools:
            self.output = nn.Linear(HEAD_CHANNELS, outputs // of.cells)
            others = outputs % of.cells
            self.rest = nn.Linear(features, others) if others else None
        else:
            self.output = nn.Linear(features, outputs)

    def forward(self, x: Tensor) -> Tensor:
        cells = to_cells(self.activation(super().forward(x)))
        logits: Tensor
        if self.hidden is not None:
            features = pool(cells) if self.pools else cells.flatten(1)
            logits = self.output(self.activation(self.hidden(features)))
        elif self.pools:
            logits = self.output(cells).flatten(1)
            if self.rest is not None:
                logits = torch.cat([logits, self.rest(pool(cells))], dim=1)
        else:
            logits = self.output(cells.flatten(1))
        return logits


class DenseHead(nn.Module):
    """A dense layer and a matrix: latent states `[B, channels]` to `[B, outputs]`."""

    def __init__(self, of: Architecture, outputs: int) -> None:
        super().__init__()
        self.hidden = Dense(of.channels, VALUE_HIDDEN)
        self.output = nn.Linear(VALUE_HIDDEN, outputs)

    def forward(self, state: Tensor) -> Tensor:
        logits: Tensor = self.output(functional.relu(self.hidden(state)))
        return logits


def initialise(network: nn.Module) -> None:
    """Draws new weights as the learner does: uniform within ±√(6 / inputs) (He et al. 2015), within a tenth of this for
    the last matrices of heads and additions to the plain tower, within 1 for matrices from actions to planes."""
    for name, parameter in network.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif name.endswith(".weight") and parameter.dim() > 1:
            small = name.endswith((".output.weight", ".rest.weight", ".pooling.weight"))
            bound = (6 / parameter[0].numel()) ** 0.5 * (0.1 if small and not name.startswith("encoding.") else 1)
            bound = 1.0 if name in ("dynamics.action.weight", "afterstate.action.weight") else bound
            nn.init.uniform_(parameter, -bound, bound)
