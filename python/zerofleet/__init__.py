"""Train and use agents that play games: the fleet, the games, search and networks of zerofleet from Python.

Start with `train`, `Run` and `Game`. The modules `torch` and `pettingzoo`, and `make` and `make_vec`, need further
packages, and are imported at the first use.
"""

import importlib
from typing import TYPE_CHECKING

from . import loggers
from ._zerofleet import game_names
from .environment_check import Findings, check
from .errors import Error, ProgramError
from .games import Game, Position, VectorGames, observations
from .networks import Network
from .player import Player
from .remote import RemoteRun, connect
from .replay import Batch, Replay, UnrolledBatch
from .run import Run, train
from .weights import Publisher, Weights, serve_weights

if TYPE_CHECKING:
    from . import pettingzoo, torch
    from .envs import make, make_vec

__all__ = ["Batch", "Error", "Findings", "Game", "Network", "Player", "Position", "ProgramError", "Publisher"]
__all__ += ["RemoteRun", "Replay", "Run", "UnrolledBatch", "VectorGames", "Weights", "check", "connect", "game_names"]
__all__ += ["loggers", "make", "make_vec", "observations", "pettingzoo", "serve_weights", "torch", "train"]


def __getattr__(name: str) -> object:
    if name in ("pettingzoo", "torch"):
        return importlib.import_module(f".{name}", __name__)
    if name in ("make", "make_vec"):
        return getattr(importlib.import_module(".envs", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
