"""Reads and writes safetensors files with numpy. Tensors of bfloat16 are arrays of `uint16` with the same bits."""

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
_TYPES: dict[str, str] = {
    "F64": "<f8",
    "I64": "<i8",
    "U64": "<u8",
    "F32": "<f4",
    "I32": "<i4",
    "F16": "<f2",
    "BF16": "<u2",
    "U8": "|u1",
}
_NAMES = {np.dtype(code): name for name, code in _TYPES.items()}


def save(
    path: str | os.PathLike[str], tensors: Mapping[str, np.ndarray[Any, Any]], metadata: Mapping[str, str] | None = None
) -> None:
    """Writes tensors of the types float64, float32, float16, int64, int32, uint64, uint8 and bfloat16 (as uint16)."""
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for name, tensor in tensors.items():
        array = np.asarray(tensor)
        array = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
        if array.dtype not in _NAMES:
            raise Error(f"the tensor {name} has the type {array.dtype}, which is not supported")
        arrays[name] = array
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    # Wide types first, so that every tensor is aligned.
    order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    for name in order:
        begin, end = end, end + arrays[name].nbytes
        kind = _NAMES[arrays[name].dtype]
        header[name] = {"dtype": kind, "shape": list(arrays[name].shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            file.write(arrays[name].tobytes())
        file.flush()
        os.fsync(file.fileno())


def load(path: str | os.PathLike[str]) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, str]]:
    """Returns the tensors of a file, read-only, and the metadata. Raises `Error` for a damaged file."""
    data = pathlib.Path(path).read_bytes()
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(_HEADER_BYTES_MAX, len(data) - 8):
        raise Error(f"{path} is not a safetensors file: the header is too long")
    tensors: dict[str, np.ndarray[Any, Any]] = {}
    try:
        header = json.loads(data[8 : 8 + length])
        metadata = dict(header.pop("__metadata__", {}))
        for name, entry in header.items():
            kind, shape = np.dtype(_TYPES[entry["dtype"]]), [int(size) for size in entry["shape"]]
            begin, end = entry["data_offsets"]
            if min(shape, default=0) < 0 or not 0 <= begin <= end <= len(data) - 8 - length:
                raise ValueError(f"the tensor {name} is outside the file")
            if math.prod(shape) * kind.itemsize != end - begin:
                raise ValueError(f"the size of the tensor {name} does not match the shape {shape}")
            flat = np.frombuffer(data, kind, math.prod(shape), 8 + length + begin)
            tensors[name] = flat.reshape(shape)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Error(f"{path} is not a safetensors file: {error}") from error
    return tensors, metadata
