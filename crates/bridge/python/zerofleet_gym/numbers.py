"""Rewards and ends of episodes as numbers. Needs numpy only."""

import numpy as np


def number(name, value):
    """Returns the number that `value` is or holds: also a numpy scalar, an int, a bool, an array of one number."""
    if type(value) is float:
        return value
    try:
        array = np.asarray(value)
        if array.size == 1 and (array.dtype.kind in "fiub" or array.dtype.kind == "O" and array.ndim == 0):
            return float(array.reshape(-1)[0])
    except Exception:
        # What numpy makes no array of is no number either.
        raise ValueError(f"the {name} is {_shown(value)}, a number is needed") from None
    if array.size != 1:
        raise ValueError(f"the {name} has the shape {array.shape}, a number is needed")
    raise ValueError(f"the {name} is {_shown(value)}, a number is needed")


def truth(name, value):
    """Returns the bool that `value` is or holds: also a numpy bool, 0 or 1, an array of one of these."""
    if type(value) is bool:
        return value
    if type(value) is np.bool_:
        return bool(value)
    try:
        found = number(name, value)
    except ValueError:
        found = None
    if found not in (0, 1):
        raise ValueError(f"{name} is {_shown(value)}, True or False is needed")
    return found == 1


def _shown(value):
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"
