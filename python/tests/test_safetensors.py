"""The file format of weights."""

from __future__ import annotations

import itertools
import json
import pathlib
from typing import Any

import numpy as np
import pytest

from zerofleet import Error, safetensors


def test_tensors_and_metadata_are_read_back(tmp_path: pathlib.Path) -> None:
    tensors: dict[str, np.ndarray[Any, Any]] = {
        "bfloat16": np.array([0x3F80], np.uint16),
        "b": np.arange(6, dtype=np.float32).reshape(2, 3).T,
        "empty": np.zeros((0, 4), np.float32),
        "scalar": np.array(7, np.float32),
    }
    file = tmp_path / "w.safetensors"
    safetensors.save(file, tensors, {"training_step": "12"})
    data = file.read_bytes()
    found = safetensors.load(data)
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].shape == tensor.shape
        np.testing.assert_array_equal(found[name], tensor)
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert header.pop("__metadata__") == {"training_step": "12"}
    assert {name: entry["dtype"] for name, entry in header.items() if entry["dtype"] != "F32"} == {"bfloat16": "BF16"}
    offsets = sorted(entry["data_offsets"] for entry in header.values())
    assert offsets[-1] == header["bfloat16"]["data_offsets"] == [28, 30], "aligned"
    assert all(before[1] == after[0] for before, after in itertools.pairwise(offsets)), "no holes"


def test_an_unsupported_type_is_refused_with_the_name(tmp_path: pathlib.Path) -> None:
    with pytest.raises(Error, match="the tensor odd has the type complex64"):
        safetensors.save(tmp_path / "w.safetensors", {"odd": np.zeros(1, np.complex64)}, {})


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 9]},
        {"dtype": "F32", "shape": [1 << 60], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]},
        {"dtype": "F9", "shape": [1], "data_offsets": [0, 4]},
        {"shape": [1]},
        7,
    ],
)
def test_a_damaged_header_is_an_error(entry: object) -> None:
    text = json.dumps({"a": entry}).encode()
    with pytest.raises(Error, match="not a safetensors file"):
        safetensors.load(len(text).to_bytes(8, "little") + text + bytes(8))


@pytest.mark.parametrize("data", [b"", b"\xff" * 8, b"\x02" + bytes(7) + b"[]", b"\x02" + bytes(7) + b"{"])
def test_other_bytes_are_an_error(data: bytes) -> None:
    with pytest.raises(Error, match="not a safetensors file"):
        safetensors.load(data)
