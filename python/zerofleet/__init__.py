"""Train and use agents that play games: the fleet, the games, search and networks of zerofleet from Python."""

from ._zerofleet import Error, game_names
from .games import Game, Position, VectorGames, observations

__all__ = ["Error", "Game", "Position", "VectorGames", "game_names", "observations"]
