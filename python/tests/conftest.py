"""Fixtures: a stand-in for the extension where it is not built, and programs as small scripts."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest

PYTHON = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(PYTHON))


class _Error(Exception):
    pass


class _Game:
    actions = 9

    def __init__(self, name: str) -> None:
        self.name = name


def _observations(game: _Game, episodes: Iterable[tuple[int, Sequence[int]]]) -> np.ndarray[Any, Any]:
    """Returns planes [B, 2, 1, 2] with the seed, the number of actions, the last action and a constant."""
    rows = [(seed, len(actions), actions[-1] if actions else -1, 7) for seed, actions in episodes]
    return np.array(rows, np.float32).reshape(-1, 2, 1, 2)


def _stand_in(name: str, **contents: Any) -> None:
    if name in sys.modules or importlib.util.find_spec(name) is not None:
        return
    module = types.ModuleType(name)
    vars(module).update(contents)
    sys.modules[name] = module


_stand_in("zerofleet._zerofleet", Error=_Error)


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces the rules of all games by planes that show the arguments."""
    games = types.ModuleType("zerofleet.games")
    vars(games).update(Game=_Game, observations=_observations)
    monkeypatch.setitem(sys.modules, "zerofleet.games", games)


@pytest.fixture
def program(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., pathlib.Path]:
    """Writes programs in Python, which the package then finds."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("ZEROFLEET_PROGRAMS", str(folder))

    def write(text: str, name: str = "zerofleet") -> pathlib.Path:
        path = folder / name
        path.write_text(f"#!{sys.executable}\n{text}")
        path.chmod(0o755)
        return path

    return write


@pytest.fixture
def real_programs() -> str:
    """Skips a test without the real programs."""
    folder = os.environ.get("ZEROFLEET_PROGRAMS")
    if not folder:
        pytest.skip("ZEROFLEET_PROGRAMS names no folder with the programs")
    return folder
