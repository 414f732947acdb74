"""Observations and actions of a Gymnasium environment as arrays and indices. Needs numpy only."""

import sys

import numpy as np

from . import protocol
from .numbers import number
from .unsupported import Unsupported

ACTIONS_MAX = 65_535
# The observations of a process that are compared with the bounds of their space, which costs half of a step.
COMPARED = 1_000


class Actions:
    """Discrete actions: zerofleet counts from 0, Gymnasium from `start`."""

    def __init__(self, space):
        kind = type(space).__name__
        if hasattr(space, "spaces") or len(getattr(space, "shape", None) or ()) > 0 or not hasattr(space, "n"):
            if kind == "Box":
                raise Unsupported("its actions are a Box, and there are no continuous actions yet")
            raise Unsupported(f"its actions are a {kind}; only Discrete actions are supported")
        self.count = int(space.n)
        self.start = int(getattr(space, "start", 0))
        if not 1 <= self.count <= ACTIONS_MAX:
            raise Unsupported(f"it has {self.count} actions; 1 to 65,535 are supported")


class Observations:
    """Observations as [C, H, W]: bytes for uint8, float32 for all others; a Discrete one is one-hot."""

    def __init__(self, space, channels):
        kind = type(space).__name__
        if hasattr(space, "spaces"):
            raise Unsupported(f"its observations are a {kind}; a single array is needed")
        shape = getattr(space, "shape", None)
        if shape is None:
            raise Unsupported(f"its observations are a {kind}, which has no shape; an array is needed")
        # A space without a type holds numbers.
        dtype = np.dtype(getattr(space, "dtype", None))
        if dtype.kind not in "fiub":
            raise Unsupported(f"its observations are a {kind} of {dtype}; an array of numbers is needed")
        self.source_shape = tuple(int(n) for n in shape)
        if 0 in self.source_shape:
            raise Unsupported(f"its observations have the shape {self.source_shape}, which holds no number")
        self.channels_last = False
        self.one_hot = None
        self.accepted = None
        self.bounds = None
        self.dtype = np.dtype(np.uint8 if dtype == np.uint8 else np.float32)
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
        if hasattr(space, "low") and hasattr(space, "high"):
            self.bounds = (space.low, space.high)
        self.compared = 0

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
            whole = isinstance(observation, (int, np.integer))
            value = observation if whole else number("observation", observation)
            index = int(value) - start
            if index + start != value or not 0 <= index < count:
                raise ValueError(f"the observation {observation} is not in Discrete({count}, start={start})")
            rows[row] = 0
            rows[row, index] = 1
            return
        array = observation if type(observation) is np.ndarray else as_array(observation)
        if array.shape != self.source_shape:
            kind = "" if type(observation) is np.ndarray else f"is a {type(observation).__name__} and "
            raise ValueError(f"the observation {kind}has the shape {array.shape} instead of {self.source_shape}")
        if array.dtype is not self.accepted:
            self.accept(array.dtype)
        rows[row] = array
        if self.bounds is not None:
            self.compare(array)

    def accept(self, dtype):
        """Checks that a type of numbers can be stored, and remembers it, since the next observations have it too."""
        if dtype.kind not in "fiub" or (self.dtype == np.uint8 and dtype != np.uint8):
            raise ValueError(f"the observation is of {dtype} instead of {self.dtype}")
        self.accepted = dtype

    def compare(self, array):
        """Reports the first value outside the bounds of the space. It is no fault, since nothing scales by them."""
        low, high = self.bounds
        outside = (array < low) | (array > high)
        self.compared += 1
        if outside.any():
            at = tuple(int(n) for n in np.argwhere(outside)[0])
            low, high = (np.broadcast_to(bound, array.shape)[at] for bound in (low, high))
            name = ", ".join(map(str, at))
            bounds = f"the bounds of its space, {low} to {high}"
            print(f"warning: observation[{name}] is {array[at]}, outside {bounds}", file=sys.stderr)
        if outside.any() or self.compared == COMPARED:
            self.bounds = None


def as_array(observation):
    """Returns the array that numpy makes of an observation of another type."""
    try:
        return np.asarray(observation)
    except Exception as error:
        raise ValueError(f"the observation is no array: {error}") from error
