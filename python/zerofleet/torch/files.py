"""Networks from model folders and runs, and model folders from networks."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .. import _zerofleet, safetensors
from ..errors import Error
from ..networks import Source, read_weights
from .networks import Network, network


def load(source: Source, version: int | None = None) -> Network:
    """Reads a network, in evaluation mode on the CPU.

    `source` is a run, a version of a run, a model folder or a manifest next to the weights. `version` selects one of a
    run, by default the latest. Logits and values are those of the float32 kernel within 1e-4.
    """
    text, data = read_weights(source, version)
    manifest = json.loads(text)
    if _manifest(manifest["architecture"], data)["digest"] != manifest["digest"]:
        raise Error(f"the weights of {source} are damaged: the digest differs from the manifest")
    # Tensors in bfloat16 are the upper halves of float32.
    tensors = {
        name: (array.astype("<u4") << 16).view("<f4") if array.dtype == np.uint16 else array
        for name, array in safetensors.load(data).items()
    }
    # No memory is allocated for an architecture before the file has these tensors.
    with torch.device("meta"):
        net = network(manifest["architecture"])
    _check(tensors, net)
    net.load_state_dict({name: torch.tensor(array) for name, array in tensors.items()}, assign=True)
    return net.eval()


def save(
    module: nn.Module | Mapping[str, Tensor],
    folder: str | os.PathLike[str],
    *,
    architecture: Mapping[str, Any] | None = None,
    version: int = 1,
    training_step: int = 0,
) -> None:
    """Writes the weights as a model folder, which `zerofleet.Network.load` and all programs of zerofleet read.

    `module` is a network of this package, or, with the `architecture` of a manifest, any module or state dict with the
    tensor names and shapes of files (docs/networks.md).
    """
    if architecture is None:
        architecture = getattr(module, "architecture", None)
        if architecture is None:
            raise ValueError("pass the architecture of a module that is not of zerofleet.torch")
    state = module.state_dict() if isinstance(module, nn.Module) else module
    arrays = {name: tensor.detach().cpu().float().contiguous().numpy() for name, tensor in state.items()}
    with torch.device("meta"):
        _check(arrays, network(architecture))
    for name, array in arrays.items():
        if not np.isfinite(array).all() or (name.endswith(".norm.variance") and (array < 0).any()):
            raise Error(f"tensor `{name}` has numbers that are not finite, or negative variances")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    # Both files are replaced whole: an interrupted save leaves the old network, or one that the digest refuses.
    weights, config = folder / "model.safetensors", folder / "config.json"
    safetensors.save(f"{weights}.tmp", arrays, {"format": "pt"})
    manifest = _manifest(architecture, Path(f"{weights}.tmp").read_bytes(), version, training_step)
    text = json.dumps({"library_name": "zerofleet", "weights": manifest}, indent=2)
    Path(f"{config}.tmp").write_text(text + "\n", encoding="utf-8")
    os.replace(f"{weights}.tmp", weights)
    os.replace(f"{config}.tmp", config)


def _manifest(architecture: Mapping[str, Any], weights: bytes, version: int = 1, step: int = 0) -> dict[str, Any]:
    """Returns the manifest of weights, with the digest."""
    text = _zerofleet.Network._manifest(json.dumps(dict(architecture)), weights, version, step)
    manifest: dict[str, Any] = json.loads(text)
    return manifest


def _check(arrays: Mapping[str, np.ndarray[Any, Any]], net: nn.Module) -> None:
    """Compares names, shapes and types of tensors with the tensors of a network."""
    expected = {name: f"float32{list(tensor.shape)}" for name, tensor in net.state_dict().items()}
    got = {name: f"{array.dtype}{list(array.shape)}" for name, array in arrays.items()}
    for name in sorted(expected.keys() | got.keys()):
        if expected.get(name) != got.get(name):
            raise Error(f"tensor `{name}` is {got.get(name, 'missing')}, expected {expected.get(name, 'no such name')}")
