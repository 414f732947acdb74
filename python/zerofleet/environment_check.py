"""Checks environments of Gymnasium before a run: `zerofleet env describe` in Python."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import programs
from .errors import Error


@dataclass(frozen=True)
class Findings:
    """Describes an environment as a run sees it, after a trial episode of random actions."""

    game: str
    """The name for `train`, such as `gym:CartPole-v1`."""
    actions: int
    observation_shape: tuple[int, int, int]
    """Channels, height and width, after stacking."""
    values: str
    """`float32`, or `bytes` for observations of uint8."""
    steps_max: int
    step_bytes: int
    """Bytes of the observation of a step before compression."""
    trial_steps: int | None
    """Length of the trial episode."""
    trial_return: float | None
    trial_end: str | None
    """`complete`, `truncated` or `stopped before the end`."""
    output: tuple[str, ...]
    """Lines that the environment printed, such as warnings."""
    section: str
    """The section `[environment]` of a run file, in TOML."""


def check(environment: str | Callable[..., Any], *, python: str = sys.executable) -> Findings:
    """Tries an episode of random actions, and describes the environment.

    Args:
        environment: a Gymnasium id, `module:id` or `call:module:function`, with or without `gym:`, or a function of a
            module that returns an environment.
        python: the interpreter for the environment.

    Raises:
        zerofleet.Error: the environment does not suit a run; the text names the call and the reason.
    """
    name, modules = (environment.removeprefix("gym:"), None) if isinstance(environment, str) else located(environment)
    arguments = ["env", "describe", "--gym", name, "--set", f"environment.python={json.dumps(python)}"]
    if modules is not None:
        arguments += ["--set", f"environment.modules={json.dumps([modules])}"]
    return parse(programs.run(arguments))


def located(function: Callable[..., Any]) -> tuple[str, str | None]:
    """Returns `call:MODULE:FUNCTION` and the directory from which the module is imported."""
    module, name = function.__module__, getattr(function, "__qualname__", "")
    if module == "__main__" or not name.isidentifier():
        raise ValueError("the processes of a run import the function: define it at the top of a module")
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return f"call:{module}:{name}", None
    path = Path(file).resolve()
    depth = module.count(".") + (1 if path.name == "__init__.py" else 0)
    return f"call:{module}:{name}", str(path.parents[depth])


def parse(text: str) -> Findings:
    """Reads the output of `zerofleet env describe`."""
    comments, _, section = text.partition("[environment]\n")
    found = re.search(
        r"^# (\S+): (\d+) actions, observations \[(\d+), (\d+), (\d+)\] of (\w+)$", comments, re.MULTILINE
    )
    limits = re.search(r"^# at most (\d+) steps, (\d+) bytes each", comments, re.MULTILINE)
    trial = re.search(r"episode with random actions: (\d+) steps, return (\S+), (.+)$", comments, re.MULTILINE)
    if found is None or limits is None:
        raise Error(f"unexpected output of `zerofleet env describe`: {text[:200]!r}")
    return Findings(
        game=found[1],
        actions=int(found[2]),
        observation_shape=(int(found[3]), int(found[4]), int(found[5])),
        values=found[6],
        steps_max=int(limits[1]),
        step_bytes=int(limits[2]),
        trial_steps=int(trial[1]) if trial else None,
        trial_return=float(trial[2]) if trial else None,
        trial_end=trial[3] if trial else None,
        output=tuple(re.findall(r"^# process output: (.*)$", comments, re.MULTILINE)),
        section=f"[environment]\n{section}",
    )
