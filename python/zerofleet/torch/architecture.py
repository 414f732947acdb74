"""Architecture of a network, as in the manifest of the weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

HEAD_CHANNELS = 32
VALUE_HIDDEN = 64
ACTION_PLANES = 4
GROUP_CHANNELS = 16

_KINDS = {
    "activation": ("relu", "mish", "silu", "gelu"),
    "block": ("residual", "bottleneck"),
    "norm": ("batch", "layer", "group"),
    "heads": ("flattened", "pooled"),
}
_DESIGN = (*_KINDS, "attention", "attention_heads")
_MODELS = {
    "alphazero": (),
    "alphazero_returns": ("support",),
    "muzero": ("support",),
    "stochastic_muzero": ("support", "codes"),
}
# Largest numbers that the programs of zerofleet read; others are bounded by these and by the file.
_LARGEST = {"blocks": 256, "attention": 256, "height": 96, "width": 96, "channels": 2048, "actions": 65_535}


@dataclass(frozen=True)
class Architecture:
    """Sizes and kinds of layers, with the defaults of manifests."""

    game: str
    planes: int
    height: int
    width: int
    actions: int
    channels: int
    blocks: int
    squeeze_excitation: int = 0
    global_pooling: int = 0
    activation: str = "relu"
    block: str = "residual"
    norm: str = "batch"
    heads: str = "flattened"
    attention: int = 0
    attention_heads: int = 0
    model: str = "alphazero"
    support: int = 0
    codes: int = 0

    @property
    def cells(self) -> int:
        """Number of cells, `H · W`."""
        return self.height * self.width

    @property
    def is_vector(self) -> bool:
        """Whether observations are vectors, so that a network of latent states is dense."""
        return self.cells == 1

    @property
    def inner_channels(self) -> int:
        """Channels of the 3×3 convolutions in a block."""
        return self.channels // 2 if self.block == "bottleneck" else self.channels

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> Architecture:
        """Reads the field `architecture` of a manifest.

        Raises `NotImplementedError` with the name of a part that these modules do not have, and `ValueError` for sizes
        that are missing or do not fit together.
        """
        own = {key: value for key, value in manifest.items() if key not in ("design", "model")}
        design, model = manifest.get("design", {}), manifest.get("model", "alphazero")
        name, sizes = (model, {}) if isinstance(model, str) else next(iter(model.items()))
        if name not in _MODELS:
            raise NotImplementedError(f"zerofleet.torch has no model `{name}`")
        known = {field.name for field in fields(cls)} - {*_DESIGN, "model", "support", "codes"}
        for part, names in ((own, known), (design, _DESIGN), (sizes, _MODELS[name])):
            for key in sorted(set(part) - set(names)):
                raise NotImplementedError(f"zerofleet.torch does not know `{key}` of an architecture")
        given = {**own, **design, **sizes}
        required = {field.name for field in fields(cls) if field.default is MISSING} | set(_MODELS[name])
        for key in sorted(required - set(given)):
            raise ValueError(f"the architecture has no `{key}`")
        architecture = cls(**given, model=name)
        architecture._check(required)
        return architecture

    def _check(self, required: set[str]) -> None:
        for key, kinds in _KINDS.items():
            if getattr(self, key) not in kinds:
                raise NotImplementedError(f"zerofleet.torch has no {key} `{getattr(self, key)}`")
        for field in fields(self):
            number, least = getattr(self, field.name), int(field.name in required and field.name != "blocks")
            if field.type == "int" and not (type(number) is int and least <= number <= _LARGEST.get(field.name, 4096)):
                raise ValueError(f"{field.name} {number!r} of the architecture is out of range")
            if self.model != "alphazero" and field.name in _DESIGN and number != field.default:
                raise NotImplementedError(f"only the model `alphazero` has {field.name} `{number}`, not `{self.model}`")
        pooled, inner = self.heads == "pooled", self.inner_channels
        for wrong, reason in (
            (self.attention and (not self.attention_heads or self.channels % self.attention_heads), "attention_heads"),
            (self.block == "bottleneck" and self.channels % 2, "bottleneck blocks"),
            (self.norm == "group" and inner % GROUP_CHANNELS, "group norm"),
            (self.global_pooling >= inner, f"global_pooling {self.global_pooling}"),
            (pooled and self.actions < self.cells, f"pooled heads with {self.actions} actions"),
        ):
            if wrong:
                raise ValueError(
                    f"{reason} of the architecture do not fit {self.channels} channels, {self.cells} cells"
                )
