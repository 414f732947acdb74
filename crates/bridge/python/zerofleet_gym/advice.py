"""Code that makes a supported environment of one whose spaces are not supported.

The code is complete: a file with it, named by `gym:call:FILE:make`, is an environment that works.
"""

import math
import re

from .unsupported import Unsupported

# The most combinations of actions that are proposed; a search with more sees few of them twice.
COMBINATIONS_MAX = 4096
# The most characters of the expression of all actions, so that a refusal has space for the code.
CHARACTERS_MAX = 2000
# The values of each continuous action: its bounds and the middle.
LEVELS = 3


def refuse(name, environment, faults, is_supported):
    """Raises Unsupported with the faults, by the space of each, and with code that mends them, if there is any.

    `faults` maps `actions` and `observations` to a reason; `is_supported` says whether observations are supported.
    """
    found = {}
    if "actions" in faults:
        found["gymnasium.ActionWrapper"] = _actions(environment.action_space)
    if "observations" in faults:
        found["gymnasium.ObservationWrapper"] = _observations(environment.observation_space, is_supported)
    reasons = ", and ".join(faults.values())
    own = [wrapper for wrapper, lines in found.items() if lines is None]
    if own:
        raise Unsupported(f"{reasons}. They need a wrapper of your own ({', '.join(own)}), and a function that applies "
                          "it as the environment gym:call:MODULE:FUNCTION: see docs/environments.md")
    module = "wrapped"
    if name.startswith("call:"):
        inner, _, function = name.removeprefix("call:").partition(":")
        imports, made = [f"import {inner}"], f"{inner}.{function}(**arguments)"
        module = "wrapped_again" if inner == module else module
    else:
        imports, made = [], f'gymnasium.make("{name}", **arguments)'
    code = [f"    environment = {made}", *(line for lines in found.values() for line in lines), "    return environment"]
    text = "\n".join(["def make(**arguments):", *code])
    used = [f"import {module}" for module in ("itertools", "gymnasium") if f"{module}." in text]
    used += ["import numpy as np"] if "np." in text else []
    wrappers = ", ".join(dict.fromkeys(re.findall(r"gymnasium\.wrappers\.\w+", text)))
    text = "\n".join([*used, *imports, "", text])
    raise Unsupported(
        f"{reasons}. To convert them by {wrappers}, write the following to {module}.py, name the environment "
        f"gym:call:{module}:make, and the folder of the file by "
        f"--set 'environment.modules=[\"FOLDER\"]'\n\n{text}\n"
    )


def _observations(space, is_supported):
    """Returns lines that replace the observations by one array, or None."""
    wrap = "    environment = gymnasium.wrappers"
    parts = _parts(space)
    images = [key for key, part in parts if is_supported(part) and len(part.shape) > 1]
    if images:
        # Flattened, its rows and columns would be lost.
        key = images[0]
        dropped = ", ".join(str(other) for other, _ in parts if other != key)
        return [
            *([f"    # Only the picture is observed, without: {dropped}."] if dropped else []),
            f"{wrap}.TransformObservation(",
            f"        environment, lambda seen: seen[{key!r}], environment.observation_space[{key!r}])",
        ]
    if _is_flat(space):
        return [f"{wrap}.FlattenObservation(environment)"]
    flat = [key for key, part in parts if _is_flat(part)]
    if not flat:
        return None
    dropped = ", ".join(str(other) for other, _ in parts if other not in flat)
    lines = [f"    # Without what has no fixed number of values: {dropped}."]
    if hasattr(space.spaces, "keys"):
        lines += [f"{wrap}.FilterObservation(environment, {flat!r})"]
    else:
        seen = ", ".join(f"seen[{key}]" for key in flat)
        kept = ", ".join(f"environment.observation_space[{key}]" for key in flat)
        lines += [
            f"{wrap}.TransformObservation(",
            f"        environment, lambda seen: ({seen},), gymnasium.spaces.Tuple([{kept}]))",
        ]
    return [*lines, f"{wrap}.FlattenObservation(environment)"]


def _parts(space):
    """Returns the keys and the spaces of a Dict or a Tuple."""
    spaces = getattr(space, "spaces", ())
    if type(space).__name__ == "OneOf":
        return []
    return list(spaces.items() if hasattr(spaces, "items") else enumerate(spaces))


def _is_flat(space):
    """Returns true if Gymnasium flattens the observations of a space to arrays of one shape. Tries it."""
    try:
        import gymnasium

        flat = gymnasium.spaces.utils.flatten_space(space)
        shape = gymnasium.spaces.utils.flatten(space, space.sample()).shape
        return isinstance(flat, gymnasium.spaces.Box) and flat.shape == shape and len(shape) == 1
    except Exception:
        return False


def _actions(space):
    """Returns lines that number the actions, or None."""
    found = _choices(space)
    if found is None or found[1] > COMBINATIONS_MAX or len(found[0]) > CHARACTERS_MAX:
        return None
    values, _ = found
    return [
        f"    choices = {values if values.startswith('[') else f'list({values})'}",
        "    environment = gymnasium.wrappers.TransformAction(",
        "        environment, lambda action: choices[action], gymnasium.spaces.Discrete(len(choices)))",
    ]


def _choices(space):
    """Returns an expression of all values of a space, and their number; None for a space without such a list."""
    kind = type(space).__name__
    if kind == "Discrete":
        start = int(getattr(space, "start", 0))
        return f"range({start}, {start + int(space.n)})", int(space.n)
    if kind in ("MultiDiscrete", "MultiBinary"):
        counts = [2] * math.prod(space.shape) if kind == "MultiBinary" else [int(n) for n in space.nvec.flat]
        starts = getattr(space, "start", None)
        starts = [0] * len(counts) if starts is None else [int(n) for n in starts.flat]
        return _arrays(space, [f"range({start}, {start + count})" for start, count in zip(starts, counts)], counts)
    if kind == "Box" and hasattr(space, "low") and hasattr(space, "high"):
        bounds = [(float(low), float(high)) for low, high in zip(space.low.flat, space.high.flat)]
        if not all(math.isfinite(bound) for pair in bounds for bound in pair):
            return None
        # Whole numbers stay within their bounds.
        levels = [f"np.linspace({low}, {high}, {LEVELS})" for low, high in bounds]
        return _arrays(space, levels, [LEVELS] * len(levels))
    found = [_choices(part) for _, part in _parts(space)]
    if not found or None in found or kind not in ("Dict", "Tuple"):
        return None
    product = f"itertools.product({', '.join(values for values, _ in found)})"
    count = math.prod(count for _, count in found)
    if hasattr(space.spaces, "keys"):
        return f"[dict(zip({list(space.spaces)!r}, chosen)) for chosen in {product}]", count
    return product, count


def _arrays(space, values, counts):
    """Returns an expression of all arrays of a space whose elements have these values, and the number of arrays."""
    product = values[0] if len(values) == 1 else f"itertools.product({', '.join(values)})"
    shape, dtype = tuple(space.shape), space.dtype
    return f"[np.array(chosen, \"{dtype}\").reshape({shape}) for chosen in {product}]", math.prod(counts)
