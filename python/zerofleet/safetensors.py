"""Files of safetensors with numpy: tensors of float32, and of bfloat16 as arrays of `uint16` with the same bits."""

from __future__ import annotations

import json
import math
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from .errors import Error

_HEADER_BYTES_MAX = 100_000_000
_TYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "BF16": np.dtype("<u2")}
_NAMES = {kind: name for name, kind in _TYPES.items()}

Arrays = dict[str, np.ndarray[Any, Any]]


def save(path: str | os.PathLike[str], tensors: Arrays, metadata: Mapping[str, str]) -> None:
    """Writes tensors with metadata."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    data: list[bytes] = []
    end = 0
    # Wide types first, so that every tensor is aligned.
    for name, array in sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0])):
        if array.dtype not in _NAMES:
            raise Error(f"the tensor {name} has the type {array.dtype}, which is not supported")
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": _NAMES[array.dtype], "shape": list(array.shape), "data_offsets": [begin, end]}
        data.append(array.tobytes())
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(b"".join([len(text).to_bytes(8, "little"), text, *data]))


def load(data: bytes) -> Arrays:
    """Returns the tensors in the bytes of a file, read-only. Raises `Error` for a damaged file."""
    length = int.from_bytes(data[:8], "little")
    tensors: Arrays = {}
    try:
        if length > min(_HEADER_BYTES_MAX, len(data) - 8):
            raise ValueError("the header is too long")
        header = json.loads(data[8 : 8 + length])
        header.pop("__metadata__", None)
        for name, entry in header.items():
            kind, shape = _TYPES[entry["dtype"]], [int(size) for size in entry["shape"]]
            begin, end = entry["data_offsets"]
            if min(shape, default=0) < 0 or not 0 <= begin <= end <= len(data) - 8 - length:
                raise ValueError(f"the tensor {name} is outside the file")
            if math.prod(shape) * kind.itemsize != end - begin:
                raise ValueError(f"the size of the tensor {name} does not match the shape {shape}")
            tensors[name] = np.frombuffer(data, kind, math.prod(shape), 8 + length + begin).reshape(shape)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Error(f"not a safetensors file: {error!r}") from error
    return tensors
