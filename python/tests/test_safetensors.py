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
        "b": np.arange(6, dtype=np.float32).reshape(2, 3).T,
        "half": np.array([1.5], np.float16),
        "bfloat16": np.array([0x3F80], np.uint16),
        "empty": np.zeros((0, 4), np.float32),
        "scalar": np.array(7, np.uint64),
        "big": np.array([1.0], ">f4"),
    }
    file = tmp_path / "w.safetensors"
    safetensors.save(file, tensors, {"training_step": "12"})
    found, metadata = safetensors.load(file)
    assert metadata == {"training_step": "12"}
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].shape == tensor.shape
        np.testing.assert_array_equal(found[name], tensor)
    header = json.loads(file.read_bytes()[8 : 8 + int.from_bytes(file.read_bytes()[:8], "little")])
    assert (header["bfloat16"]["dtype"], header["half"]["dtype"]) == ("BF16", "F16")
    offsets = sorted(entry["data_offsets"] for name, entry in header.items() if name != "__metadata__")
    assert all(before[1] == after[0] for before, after in itertools.pairwise(offsets)), "no holes"


def test_an_unsupported_type_is_refused_with_the_name(tmp_path: pathlib.Path) -> None:
    with pytest.raises(Error, match="the tensor odd has the type complex64"):
        safetensors.save(tmp_path / "w.safetensors", {"odd": np.zeros(1, np.complex64)})


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
def test_a_damaged_header_is_an_error(tmp_path: pathlib.Path, entry: object) -> None:
    text = json.dumps({"a": entry}).encode()
    file = tmp_path / "w.safetensors"
    file.write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
    with pytest.raises(Error, match="is not a safetensors file"):
        safetensors.load(file)


@pytest.mark.parametrize("data", [b"", b"\xff" * 8, b"\x02" + bytes(7) + b"[]", b"\x02" + bytes(7) + b"{"])
def test_other_bytes_are_an_error(tmp_path: pathlib.Path, data: bytes) -> None:
    file = tmp_path / "w.safetensors"
    file.write_bytes(data)
    with pytest.raises(Error):
        safetensors.load(file)
