"""Observations and actions of a Gymnasium environment as arrays and indices. Needs numpy only."""

import numpy as np

from . import protocol
from .unsupported import Unsupported


class Actions:
    """Discrete actions: zerofleet counts from 0, Gymnasium from `start`."""

    def __init__(self, space):
        if hasattr(space, "spaces") or len(getattr(space, "shape", None) or ()) > 0:
            kind = type(space).__name__
            if kind == "Box":
                raise Unsupported("its actions are a Box, and there are no continuous actions yet")
            raise Unsupported(f"its actions are a {kind}; only Discrete actions are supported")
        if not hasattr(space, "n"):
            raise Unsupported(f"its actions are a {type(space).__name__}; only Discrete actions are supported")
        self.count = int(space.n)
        self.start = int(getattr(space, "start", 0))
        if not 1 <= self.count <= 65_535:
            raise Unsupported(f"it has {self.count} actions; 1 to 65,535 are supported")


class Observations:
    """Observations as [C, H, W]: bytes for uint8, float32 for all others; a Discrete one is one-hot."""

    def __init__(self, space, channels):
        if hasattr(space, "spaces"):
            raise Unsupported(
                f"its observations are a {type(space).__name__}; wrap it in gymnasium.wrappers.FlattenObservation"
            )
        shape = getattr(space, "shape", None)
        if shape is None:
            raise Unsupported(f"its observations are a {type(space).__name__}, which has no shape")
        self.source_shape = tuple(int(n) for n in shape)
        self.channels_last = False
        self.one_hot = None
        self.accepted = None
        self.dtype = np.dtype(np.uint8 if np.dtype(space.dtype) == np.uint8 else np.float32)
        if self.source_shape == () and hasattr(space, "n"):
            self.one_hot = (int(space.n), int(getattr(space, "start", 0)))
            self.dtype = np.dtype(np.float32)
            self.shape = (self.one_hot[0], 1, 1)
        elif len(self.source_shape) <= 1:
            self.shape = (int(np.prod(self.source_shape)), 1, 1)
        elif len(self.source_shape) == 2:
            self.shape = (1, *self.source_shape)
        elif len(self.source_shape) == 3:
            first, middle, last = self.source_shape
            self.channels_last = last <= first if channels == "auto" else channels == "last"
            self.shape = (last, first, middle) if self.channels_last else self.source_shape
        else:
            shape = self.source_shape
            raise Unsupported(f"its observations have the shape {shape}; up to three dimensions are supported")

    @property
    def protocol_dtype(self):
        return protocol.BYTES if self.dtype == np.uint8 else protocol.FLOATS

    def view(self, rows):
        """Returns a view of `rows`, [n, C, H, W], into which observations can be written in their own shape."""
        if self.channels_last:
            return rows.transpose(0, 2, 3, 1)
        return rows.reshape(len(rows), *(self.shape if self.one_hot else self.source_shape))

    def write(self, observation, rows, row):
        """Writes one observation into a row of a `view`; raises ValueError if it is not of this space."""
        if self.one_hot is not None:
            count, start = self.one_hot
            index = int(observation) - start
            if not 0 <= index < count:
                raise ValueError(f"the observation {observation} is not in Discrete({count}, start={start})")
            rows[row] = 0
            rows[row, index] = 1
            return
        array = observation if type(observation) is np.ndarray else np.asarray(observation)
        if array.shape != self.source_shape:
            raise ValueError(f"the observation has the shape {array.shape} instead of {self.source_shape}")
        if array.dtype is not self.accepted:
            self.accept(array.dtype)
        rows[row] = array

    def accept(self, dtype):
        """Checks that a type of numbers can be stored, and remembers it, since the next observations have it too."""
        if dtype.kind not in "fiub" or (self.dtype == np.uint8 and dtype != np.uint8):
            raise ValueError(f"the observation is of {dtype} instead of {self.dtype}")
        self.accepted = dtype
