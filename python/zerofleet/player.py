"""Players that search with a network: analyses of positions, and moves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from . import _zerofleet, run_directory
from .networks import Network, Source, path_of

if TYPE_CHECKING:
    from ._zerofleet import Analysis, Position


class Player:
    """A player that searches every position with a network: `Player("runs/first").play("4 4 3")`.

    A player has the same analysis of a position in every call. Threads may share a player.
    """

    def __init__(
        self,
        source: Network | Source,
        simulations: int = 200,
        *,
        version: int | None = None,
        seed: int = 0,
        precision: str = "f32",
        board: str | None = None,
        **search: Any,
    ) -> None:
        """Loads the network of a run, a version of a run, a model folder, a manifest or a bundled model, or takes one.

        `simulations` are the simulations of each search, and 0 plays without a search. `version` is a weights version
        of a run; the default is the latest. `precision` and `board` are as in `Network`. `search` has keys of the
        section `[search]` of a run file, such as `c_init=2.5`, and `discount`: the defaults are the settings of the
        run or of the model folder, or else the defaults of a run file.
        """
        settings: dict[str, Any] = {}
        if isinstance(source, Network):
            self.network = source
        else:
            self.network = Network.load(source, version=version, precision=precision, board=board)
            folder = path_of(source)
            files = [name for name in ("config.toml", "run.toml") if (folder / name).is_file()]
            if files:
                config = run_directory.config(folder, files[0])
                settings = {**config.get("search", {}), "discount": config["run"].get("discount", 1.0)}
        self.game = self.network.game
        """Name of the game, with the board."""
        self.simulations = simulations
        """Simulations of each search."""
        self.seed = seed
        """Seed of each search."""
        self._search = _zerofleet.Search(self.network._native, **{**settings, **search})

    def analyse(
        self,
        moves: str | Iterable[str | int] | Position,
        *,
        simulations: int | None = None,
        on_progress: Callable[[Analysis], object] | None = None,
    ) -> Analysis:
        """Searches a position in which the game is not over.

        `moves` are the moves from the start, as text (`"4 4 3"`) or as a list of moves and actions; or a position.
        `simulations` replace the simulations of the player. `on_progress` is called with the analysis so far about
        every 20 ms of a search by the rules. An exception in `on_progress` ends the search, and so does Ctrl-C.

        Raises `ValueError` for an illegal move, a game that is over or another board, and `Error` for another game.
        """
        position = moves
        if not isinstance(position, _zerofleet.Position):
            listed = position.split() if isinstance(position, str) else position
            position = _zerofleet.Game(self.game).position(listed)
        count = self.simulations if simulations is None else simulations
        return self._search.analyse(position, count, self.seed, on_progress)

    def play(self, position: str | Iterable[str | int] | Position) -> int:
        """Returns the best action in a position, which is given as in `analyse`."""
        return self.analyse(position).best

    def __repr__(self) -> str:
        return f"Player({self.network!r}, simulations={self.simulations})"
